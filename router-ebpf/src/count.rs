//! Counters by reason.

use crate::atomic;
use crate::maps::COUNTERS;

/// Adds to one of `counter`.
///
/// Atomic although the slot is this CPU's own: the program also runs in process context, where a softirq may
/// run it again in the middle of an addition.
#[inline(always)]
pub fn add(counter: u32, value: u64) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter) {
        // SAFETY: `slot` is a live map value.
        unsafe { atomic::count(slot, value) };
    }
}

/// Counts one.
#[inline(always)]
pub fn one(counter: u32) {
    add(counter, 1);
}
