//! The maps. Never pinned in bpffs: they live and start at zero with the router.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray, RingBuf, SockMap};
use router_common::map::{
    BACKENDS_MAX, BackendCell, CLIENTS_MAX, EVENTS_BYTES, FLOWS_MAX, FlowEntry, LAYOUT, LAYOUT_MARK, counter,
};

/// What the loader compares with its own.
#[used]
#[unsafe(no_mangle)]
static MAP_LAYOUT: [u64; 2] = [LAYOUT_MARK, LAYOUT];

/// Upstream connections by flow; this map carries the program.
#[map]
pub static UPSTREAMS: SockMap = SockMap::with_max_entries(FLOWS_MAX, 0);

/// The state of each upstream connection; userspace has it mapped.
#[map]
pub static FLOWS: Array<FlowEntry> = Array::with_max_entries(FLOWS_MAX, BPF_F_MMAPABLE);

/// Client connections: only a target of redirects.
#[map]
pub static CLIENTS: SockMap = SockMap::with_max_entries(CLIENTS_MAX, 0);

/// Counts of each backend; userspace has it mapped.
#[map]
pub static BACKENDS: Array<BackendCell> = Array::with_max_entries(BACKENDS_MAX, BPF_F_MMAPABLE);

/// One value for each of `counter`.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(counter::COUNT, 0);

macro_rules! rings {
    ($($name:ident = $relay:literal),*) => {
        $(
            /// News for one relay.
            #[map]
            static $name: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);
        )*

        /// The ring of a relay.
        #[inline(always)]
        pub fn ring(relay: u32) -> &'static RingBuf {
            match relay {
                $($relay => &$name,)*
                _ => &EVENTS_0,
            }
        }
    };
}

rings!(
    EVENTS_0 = 0,
    EVENTS_1 = 1,
    EVENTS_2 = 2,
    EVENTS_3 = 3,
    EVENTS_4 = 4,
    EVENTS_5 = 5,
    EVENTS_6 = 6,
    EVENTS_7 = 7
);
