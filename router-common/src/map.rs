//! What lies in the BPF maps: the layout both sides agree on.
//!
//! Plain integers only, no padding, sizes asserted. Both sides reach the shared words through atomic operations;
//! each field names its one writer.
//!
//! Two index spaces: F = an upstream connection for as long as it is open (`UPSTREAMS`, `FLOWS`), C = a client
//! connection (`CLIENTS`).

use core::mem::offset_of;

use crate::framing::Framing;

/// Entries of `FLOWS` and `UPSTREAMS`; a power of two, since a socket's cookie picks its place.
pub const FLOWS_MAX: u32 = 16_384;
/// Places, from the one its cookie picks, where a flow may lie; where all are taken the insert is refused and the
/// flow goes by copy. The kernel numbers sockets in sequence, so that the places fill evenly.
pub const FLOW_PROBES: u32 = 8;
/// Entries of `CLIENTS`.
pub const CLIENTS_MAX: u32 = 16_384;
/// Entries of `BACKENDS`.
pub const BACKENDS_MAX: u32 = 1_024;
/// Event rings, one a relay.
pub const RELAYS_MAX: u32 = 8;
/// Bytes of one event ring: room for 2,730 events of 24 bytes; what doesn't fit is found by the sweep.
pub const EVENTS_BYTES: u32 = 65_536;

/// Values of [`FlowEntry::state`].
pub mod state {
    /// Userspace owns the flow; every byte passes to it.
    pub const USER: u32 = 0;
    /// Userspace has read all and waits; the next byte may be the kernel's.
    pub const ARMED: u32 = 1;
    /// The program redirects to the client.
    pub const STREAM: u32 = 2;
}

/// Bits of [`FlowEntry::dirty`] and values of [`EventRecord::kind`].
pub mod event {
    /// The message has ended; its last byte was redirected.
    pub const ENDED: u32 = 1;
    /// Bytes passed while the flow was armed: they came before userspace had read all.
    pub const PASSED_UNREAD: u32 = 2;
    /// Bytes passed: the client is too far behind.
    pub const PASSED_SPILL: u32 = 4;
    /// Bytes passed: malformed framing, or bytes behind the end of the message.
    pub const PASSED_FRAMING: u32 = 8;
    /// Bytes passed: the client's socket is gone.
    pub const PASSED_CLIENT_GONE: u32 = 16;
}

/// One upstream connection.
#[repr(C, align(64))]
pub struct FlowEntry {
    /// The socket's cookie, 0 = free place. Userspace, while the socket isn't in `UPSTREAMS`.
    pub cookie: u64,
    /// One of [`state`]; moved by compare-and-swap or swap, from both sides.
    pub state: u32,
    /// Index in `CLIENTS`. Userspace, in state USER.
    pub client: u32,
    /// Bytes that reached the program, counted before it looks at the state. The program.
    pub arrived: u64,
    /// Bytes given to userspace. The program.
    pub passed: u64,
    /// Bytes redirected. The program.
    pub redirected: u64,
    /// The value of `passed` at which an armed flow may stream. Userspace, in state USER.
    pub arm_at: u64,
    /// The value of `redirected` up to which the client's window needn't be looked at. Userspace in state USER,
    /// else the program.
    pub redirected_max: u64,
    /// The client's `bytes_acked` once all but the flow's redirected bytes are acknowledged, less what the flow
    /// had redirected when it was armed; so `redirected + acked_base - bytes_acked` is what the client owes.
    /// Two's complement. Userspace, in state USER.
    pub acked_base: u64,

    /// Where in the message the flow is. Userspace in state USER, the program in STREAM.
    pub framing: Framing,
    /// The program's working copy, taken over only where the bytes are redirected. It lies here and not on the
    /// program's stack, so that the verifier doesn't follow its values.
    pub scratch: Framing,
    /// The program's place in the bytes that it looks at.
    pub position: u64,
    /// Bits of [`event`] that userspace hasn't taken yet. Set by the program, cleared by userspace.
    pub dirty: u32,
    /// Whose event ring, below [`RELAYS_MAX`]. Userspace, in state USER.
    pub relay: u32,

    /// Backend + 1 whose in-flight count holds this flow, 0 = none. Whoever swaps it to 0 counts down.
    pub charge: u32,
    /// The entry's own place, for events. Userspace, while the socket isn't in `UPSTREAMS`.
    pub index: u32,
    /// Not used; keeps the rest of the cache line free of other writers.
    pub reserved: [u32; 14],
}

/// Counts of one backend that both sides change.
#[repr(C, align(64))]
pub struct BackendCell {
    /// Flows in ARMED or STREAM, or taken back before their charge was taken.
    pub in_flight: u32,
    /// Not used; a cache line for each backend.
    pub reserved: [u32; 15],
}

/// What the program tells the relay of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "userspace",
    derive(
        zerocopy::FromBytes,
        zerocopy::IntoBytes,
        zerocopy::Immutable,
        zerocopy::KnownLayout
    )
)]
pub struct EventRecord {
    /// The flow's socket, so that news of a connection that is gone isn't taken for its successor's.
    pub cookie: u64,
    /// Index in `FLOWS`.
    pub flow: u32,
    /// One of [`event`].
    pub kind: u32,
}

const _: () = assert!(size_of::<FlowEntry>() == 192 && align_of::<FlowEntry>() == 64);
const _: () = assert!(size_of::<BackendCell>() == 64 && align_of::<BackendCell>() == 64);
const _: () = assert!(size_of::<EventRecord>() == 16 && align_of::<EventRecord>() == 8);
const _: () = assert!(FLOWS_MAX.is_power_of_two() && RELAYS_MAX.is_power_of_two());

/// Stands in the object in front of [`LAYOUT`], so that the loader finds it.
pub const LAYOUT_MARK: u64 = 0x7761_726d_6c61_796f;

/// A number that changes with the layout: an object built from other sources is refused instead of writing to the
/// wrong words.
pub const LAYOUT: u64 = {
    let facts = [
        offset_of!(FlowEntry, cookie),
        offset_of!(FlowEntry, state),
        offset_of!(FlowEntry, client),
        offset_of!(FlowEntry, arrived),
        offset_of!(FlowEntry, passed),
        offset_of!(FlowEntry, redirected),
        offset_of!(FlowEntry, arm_at),
        offset_of!(FlowEntry, redirected_max),
        offset_of!(FlowEntry, acked_base),
        offset_of!(FlowEntry, framing),
        offset_of!(FlowEntry, dirty),
        offset_of!(FlowEntry, relay),
        offset_of!(FlowEntry, charge),
        offset_of!(FlowEntry, index),
        size_of::<FlowEntry>(),
        size_of::<BackendCell>(),
        size_of::<EventRecord>(),
        FLOWS_MAX as usize,
        CLIENTS_MAX as usize,
        BACKENDS_MAX as usize,
        FLOW_PROBES as usize,
        RELAYS_MAX as usize,
        counter::COUNT as usize,
    ];
    // FNV-1a over the numbers.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut index = 0;
    while index < facts.len() {
        hash = (hash ^ facts[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
};

/// Where in `FLOWS` the flow of a socket may lie, for `probe` in `0..FLOW_PROBES`.
#[must_use]
#[inline(always)]
pub const fn flow_index(cookie: u64, probe: u32) -> u32 {
    ((cookie as u32).wrapping_add(probe)) & (FLOWS_MAX - 1)
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident = $index:literal, $label:literal;)*) => {
        /// Indices in the per-CPU `COUNTERS`: every verdict has one.
        pub mod counter {
            $($(#[doc = $doc])* pub const $name: u32 = $index;)*
            /// How many there are.
            pub const COUNT: u32 = [$($index),*].len() as u32;
            /// Their names, by index.
            pub const NAMES: [&str; COUNT as usize] = [$($label),*];
        }
    };
}

counters! {
    /// Calls that redirected.
    REDIRECTED = 0, "redirected";
    /// Bytes redirected.
    REDIRECTED_BYTES = 1, "redirected_bytes";
    /// Messages whose end was redirected.
    ENDED = 2, "ended";
    /// Passed: the flow is userspace's.
    PASS_USER = 3, "pass_user";
    /// Passed: the socket has no flow.
    PASS_NO_FLOW = 4, "pass_no_flow";
    /// Passed: armed, but userspace has bytes to read.
    PASS_UNREAD = 5, "pass_unread";
    /// Passed: the client is further behind than the limit.
    PASS_SPILL = 6, "pass_spill";
    /// Passed: malformed framing, or bytes behind the end of the message.
    PASS_FRAMING = 7, "pass_framing";
    /// Passed: the client's socket is gone.
    PASS_CLIENT_GONE = 8, "pass_client_gone";
    /// Passed: userspace took the flow back at the same moment.
    PASS_TAKEN_BACK = 9, "pass_taken_back";
    /// Dropped: an end of stream, which carries no bytes.
    DROP_EMPTY = 10, "drop_empty";
    /// Flows that went from ARMED to STREAM.
    STREAMED = 11, "streamed";
    /// Calls whose bytes were one whole chunk, or lay inside one.
    FRAMED_FAST = 12, "framed_fast";
    /// Calls that walked the framing byte by byte.
    FRAMED_SLOW = 13, "framed_slow";
    /// Calls that looked at the client's acknowledged bytes.
    WINDOW_LOOKUPS = 14, "window_lookups";
    /// Events that found their ring full.
    EVENTS_LOST = 15, "events_lost";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_stay_in_the_map_and_differ() {
        for cookie in [0u64, 1, u64::from(FLOWS_MAX) - 1, u64::MAX] {
            for probe in 0..FLOW_PROBES {
                assert!(flow_index(cookie, probe) < FLOWS_MAX);
                assert_eq!(
                    flow_index(cookie, probe),
                    flow_index(cookie.wrapping_add(u64::from(probe)), 0)
                );
            }
        }
    }

    #[test]
    fn counters_are_numbered_in_order_of_their_names() {
        assert_eq!(
            counter::NAMES[counter::REDIRECTED_BYTES as usize],
            "redirected_bytes"
        );
        assert_eq!(counter::NAMES[counter::EVENTS_LOST as usize], "events_lost");
    }
}
