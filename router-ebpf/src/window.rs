//! How far the client is behind.
//!
//! Redirected bytes that wait for a slow client are charged to no socket: without a bound the kernel's memory
//! fills at the rate of the engine.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_map_lookup_elem, bpf_sk_release, bpf_skc_to_tcp_sock};
use router_common::map::{FlowEntry, counter};

use crate::count;
use crate::maps::CLIENTS;

/// Bytes that a flow may have redirected and unacknowledged. Set by the loader.
#[unsafe(no_mangle)]
static FLOW_BYTES_MAX: u64 = 0;

/// Where `bytes_acked` lies in this kernel's `struct tcp_sock`. Set by the loader from the kernel's BTF.
#[unsafe(no_mangle)]
static BYTES_ACKED_OFFSET: u64 = 0;

/// Whether `length` more bytes may be redirected.
///
/// # Safety
/// `flow` is a live map value.
#[inline(always)]
pub unsafe fn has_room(flow: *mut FlowEntry, length: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let wanted = (*flow).redirected + length;
        if wanted <= (*flow).redirected_max {
            return true;
        }
        look_up(flow);
        wanted <= (*flow).redirected_max
    }
}

/// Reads how much the client has acknowledged and sets `redirected_max` anew.
///
/// A client that isn't in its map any more leaves the bound as it is: the redirect will fail and say why.
#[inline(never)]
unsafe fn look_up(flow: *mut FlowEntry) {
    count::one(counter::WINDOW_LOOKUPS);
    // SAFETY: `flow` is a live map value. The lookup takes a reference, which is released on each path; the offset
    // is that of a `u64` member of the structure by the kernel's own type data, and the verifier checks it again.
    unsafe {
        let client = (*flow).client;
        let socket = bpf_map_lookup_elem(
            (&raw const CLIENTS).cast_mut().cast(),
            (&raw const client).cast_mut().cast(),
        );
        if socket.is_null() {
            return;
        }
        let tcp: *mut c_void = bpf_skc_to_tcp_sock(socket).cast();
        if !tcp.is_null() {
            let offset = (&raw const BYTES_ACKED_OFFSET).read_volatile();
            let acked = tcp
                .cast::<u8>()
                .add(offset as usize)
                .cast::<u64>()
                .read_volatile();
            let limit = (&raw const FLOW_BYTES_MAX).read_volatile();
            let max = acked.wrapping_sub((*flow).acked_base).wrapping_add(limit) as i64;
            (*flow).redirected_max = if max > 0 { max as u64 } else { 0 };
        }
        bpf_sk_release(socket.cast());
    }
}
