//! The verdict on bytes from an upstream connection.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{__sk_buff, sk_action};
use aya_ebpf::helpers::bpf_sk_redirect_map;
use aya_ebpf::macros::stream_verdict;
use aya_ebpf::programs::SkBuffContext;
use router_common::map::{FlowEntry, counter, event, state};

use crate::maps::CLIENTS;
use crate::{atomic, count, flow, frame, window};

/// Passes to userspace or redirects to the client.
#[stream_verdict]
pub fn response(context: SkBuffContext) -> u32 {
    let skb = context.as_ptr().cast::<__sk_buff>();
    // SAFETY: `skb` is the program's context.
    let length = u64::from(unsafe { (*skb).len });
    // An end of stream. A redirected one would break the client's queue for good, and so would a passed one on a
    // socket that is a target as well; userspace sees the end in either case.
    if length == 0 {
        count::one(counter::DROP_EMPTY);
        return sk_action::SK_DROP;
    }
    let Some(flow) = flow::of(skb) else {
        count::one(counter::PASS_NO_FLOW);
        return sk_action::SK_PASS;
    };
    // SAFETY: `flow` is a live map value, `skb` the context.
    unsafe { verdict(skb, flow, length) }
}

/// The verdict by the flow's state. Every change of state is claimed from the state that was seen; once bytes have
/// passed, all pass until userspace arms again.
#[inline(always)]
unsafe fn verdict(skb: *mut __sk_buff, flow: *mut FlowEntry, length: u64) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        // Counted before the state is loaded: userspace sets the state and then reads the count, so that at least
        // one side sees the other.
        atomic::add(&raw mut (*flow).arrived, length);
        match (&raw const (*flow).state).read_volatile() {
            state::STREAM => {}
            state::ARMED => {
                if (*flow).passed != (*flow).arm_at {
                    flow::give_back(
                        flow,
                        length,
                        state::ARMED,
                        counter::PASS_UNREAD,
                        event::PASSED_UNREAD,
                    );
                    return sk_action::SK_PASS;
                }
                if !atomic::transition(&raw mut (*flow).state, state::ARMED, state::STREAM) {
                    flow::pass(flow, length, counter::PASS_TAKEN_BACK);
                    return sk_action::SK_PASS;
                }
                count::one(counter::STREAMED);
            }
            _ => {
                flow::pass(flow, length, counter::PASS_USER);
                return sk_action::SK_PASS;
            }
        }
        stream(skb, flow, length)
    }
}

/// The verdict in state STREAM.
#[inline(always)]
unsafe fn stream(skb: *mut __sk_buff, flow: *mut FlowEntry, length: u64) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        if !window::has_room(flow, length) {
            flow::give_back(
                flow,
                length,
                state::STREAM,
                counter::PASS_SPILL,
                event::PASSED_SPILL,
            );
            return sk_action::SK_PASS;
        }
        if !frame::frame(skb, flow, length) {
            flow::give_back(
                flow,
                length,
                state::STREAM,
                counter::PASS_FRAMING,
                event::PASSED_FRAMING,
            );
            return sk_action::SK_PASS;
        }
        let ended = (*flow).scratch.is_done();
        // Claimed before the redirect: from then on nobody else gives the flow back.
        if ended && !atomic::transition(&raw mut (*flow).state, state::STREAM, state::USER) {
            flow::pass(flow, length, counter::PASS_TAKEN_BACK);
            return sk_action::SK_PASS;
        }
        let target = (&raw const CLIENTS).cast_mut().cast();
        if bpf_sk_redirect_map(skb, target, (*flow).client, 0) != i64::from(sk_action::SK_PASS) {
            if ended {
                flow::pass(flow, length, counter::PASS_CLIENT_GONE);
                flow::announce(flow, event::PASSED_CLIENT_GONE);
            } else {
                flow::give_back(
                    flow,
                    length,
                    state::STREAM,
                    counter::PASS_CLIENT_GONE,
                    event::PASSED_CLIENT_GONE,
                );
            }
            return sk_action::SK_PASS;
        }
        // Redirected: from here on the answer is the redirect's.
        (*flow).framing.copy_from(&(*flow).scratch);
        let redirected = &raw mut (*flow).redirected;
        redirected.write_volatile((*flow).redirected + length);
        count::one(counter::REDIRECTED);
        count::add(counter::REDIRECTED_BYTES, length);
        if ended {
            count::one(counter::ENDED);
            flow::discharge(flow);
            flow::announce(flow, event::ENDED);
        }
        sk_action::SK_PASS
    }
}
