//! The entry of a connection: finding it, passing bytes to userspace, telling the relay.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::bpf_get_socket_cookie;
use router_common::map::{EventRecord, FLOW_PROBES, FlowEntry, counter, flow_index, state};

use crate::maps::{BACKENDS, FLOWS, ring};
use crate::{atomic, count};

/// The flow of the socket that received `skb`.
#[inline(always)]
pub fn of(skb: *mut __sk_buff) -> Option<*mut FlowEntry> {
    // SAFETY: `skb` is the program's context.
    let cookie = unsafe { bpf_get_socket_cookie(skb.cast()) };
    for probe in 0..FLOW_PROBES {
        let entry = FLOWS.get_ptr_mut(flow_index(cookie, probe))?;
        // SAFETY: `entry` is a live map value; the cookie changes only while the socket isn't in the map.
        if unsafe { (*entry).cookie } == cookie {
            return Some(entry);
        }
    }
    None
}

/// Leaves the bytes to userspace, which owns the flow already.
///
/// # Safety
/// `flow` is a live map value.
#[inline(always)]
pub unsafe fn pass(flow: *mut FlowEntry, length: u64, reason: u32) {
    // SAFETY: the caller's. Userspace reads `passed` while this writes it; a word is written whole.
    unsafe {
        let passed = &raw mut (*flow).passed;
        passed.write_volatile(passed.read_volatile() + length);
    }
    count::one(reason);
}

/// Gives the flow back to userspace together with the bytes, and says so.
///
/// # Safety
/// `flow` is a live map value.
#[inline(never)]
pub unsafe fn give_back(flow: *mut FlowEntry, length: u64, from: u32, reason: u32, kind: u32) {
    // SAFETY: the caller's.
    unsafe {
        // Who takes a flow out of STREAM also takes the charge; here userspace does, since it has bytes to handle.
        let won = atomic::transition(&raw mut (*flow).state, from, state::USER);
        if !won {
            pass(flow, length, counter::PASS_TAKEN_BACK);
            return;
        }
        pass(flow, length, reason);
        announce(flow, kind);
    }
}

/// Counts the flow out of its backend, unless userspace has done so.
///
/// # Safety
/// `flow` is a live map value.
#[inline(always)]
pub unsafe fn discharge(flow: *mut FlowEntry) {
    // SAFETY: the caller's; the cell is a live map value.
    unsafe {
        let charge = atomic::swap(&raw mut (*flow).charge, 0);
        if charge == 0 {
            return;
        }
        if let Some(cell) = BACKENDS.get_ptr_mut(charge - 1) {
            atomic::decrement(&raw mut (*cell).in_flight);
        }
    }
}

/// Tells the relay. The bit is set first: where the ring is full, the relay's sweep finds it.
///
/// # Safety
/// `flow` is a live map value.
#[inline(always)]
pub unsafe fn announce(flow: *mut FlowEntry, kind: u32) {
    // SAFETY: the caller's.
    unsafe {
        atomic::set_bits(&raw mut (*flow).dirty, kind);
        let record = EventRecord {
            cookie: (*flow).cookie,
            flow: (*flow).index,
            kind,
        };
        if ring((*flow).relay).output::<EventRecord>(record, 0).is_err() {
            count::one(counter::EVENTS_LOST);
        }
    }
}
