//! Atomic operations on map memory.
//!
//! `core` has no `AtomicU32` for this target; the intrinsics become single BPF instructions with `-Ctarget-cpu=v3`.
//! All of them with a result are full barriers.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_or, atomic_xadd, atomic_xchg};

/// Adds without ordering anything else.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn count(word: *mut u64, value: u64) {
    // SAFETY: the caller's.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, value) };
}

/// Adds; later loads see what others wrote before they could see the sum.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn add(word: *mut u64, value: u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(word, value) }
}

/// Takes one off.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn decrement(word: *mut u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(word, u32::MAX) }
}

/// Sets bits.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn set_bits(word: *mut u32, bits: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { atomic_or::<u32, u32, { AtomicOrdering::SeqCst }>(word, bits) }
}

/// Puts a value in and gives back the one that was there.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn swap(word: *mut u32, value: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { atomic_xchg::<u32, { AtomicOrdering::SeqCst }>(word, value) }
}

/// Goes from one value to another; `false` = it held something else and is unchanged.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub unsafe fn transition(word: *mut u32, from: u32, to: u32) -> bool {
    // SAFETY: the caller's.
    unsafe { atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, from, to).1 }
}
