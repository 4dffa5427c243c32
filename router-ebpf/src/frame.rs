//! The framing over the bytes of one skb.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::cty::{c_long, c_void};
use aya_ebpf::helpers::{bpf_loop, bpf_skb_load_bytes};
use router_common::framing::is_one_chunk;
use router_common::map::{FlowEntry, counter};

use crate::count;

/// Runs the framing over all of `skb` on the scratch copy; `true` = every byte belongs to the message.
///
/// # Safety
/// `flow` is a live map value and `skb` the program's context with `length` bytes.
#[inline(always)]
pub unsafe fn frame(skb: *mut __sk_buff, flow: *mut FlowEntry, length: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let scratch = &mut (*flow).scratch;
        scratch.copy_from(&(*flow).framing);
        let data = scratch.take_data(length);
        if data == length {
            count::one(counter::FRAMED_FAST);
            return true;
        }
        if data == 0 && scratch.is_at_chunk_start() && length >= 8 {
            // As words: an array of bytes would be cleared byte by byte.
            let mut head = 0u64;
            let mut tail = 0u16;
            let read = bpf_skb_load_bytes(skb.cast(), 0, (&raw mut head).cast(), 8)
                | bpf_skb_load_bytes(skb.cast(), length as u32 - 2, (&raw mut tail).cast(), 2);
            if read == 0 && is_one_chunk(head.to_ne_bytes(), tail.to_ne_bytes(), length) {
                scratch.skip_one_chunk();
                count::one(counter::FRAMED_FAST);
                return true;
            }
        }
        (*flow).position = data;
        count::one(counter::FRAMED_SLOW);
        walk(skb, flow, length)
    }
}

/// What the callback needs; everything that changes lies in the flow.
struct Walk {
    skb: *mut __sk_buff,
    flow: *mut FlowEntry,
    length: u64,
}

/// The general case: payload in runs, framing byte by byte.
#[inline(never)]
unsafe fn walk(skb: *mut __sk_buff, flow: *mut FlowEntry, length: u64) -> bool {
    let mut walk = Walk { skb, flow, length };
    // Each turn eats a byte or more, so `length` turns suffice.
    // SAFETY: the callback's context is `walk`, which outlives the loop.
    unsafe {
        bpf_loop(length as u32, walk_on as *mut c_void, (&raw mut walk).cast(), 0);
        (*flow).position == length
    }
}

/// One turn: 0 = go on, 1 = stop.
unsafe extern "C" fn walk_on(_index: u32, walk: *mut Walk) -> c_long {
    // SAFETY: `walk` is the context that `walk` passed, its pointers are its caller's.
    unsafe {
        let flow = (*walk).flow;
        let length = (*walk).length;
        let position = (*flow).position;
        if position >= length {
            return 1;
        }
        let scratch = &mut (*flow).scratch;
        let data = scratch.take_data(length - position);
        if data > 0 {
            (*flow).position = position + data;
            return 0;
        }
        let mut byte = 0u8;
        if bpf_skb_load_bytes((*walk).skb.cast(), position as u32, (&raw mut byte).cast(), 1) != 0 {
            return 1;
        }
        if !scratch.step(byte) {
            return 1;
        }
        (*flow).position = position + 1;
        0
    }
}
