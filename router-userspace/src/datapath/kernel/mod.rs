//! The kernel path: response bodies that go from the upstream's socket to the client's without userspace.
//!
//! [`Kernel::load`] loads the programs once, for all threads; the handle is cheap to clone. A BPF program then runs
//! on every segment that an inserted upstream connection receives: it passes it to userspace, as if it weren't
//! there, unless the flow is *armed*; then it redirects it to the client's socket and follows the framing to the
//! end of the message.
//!
//! # One flow, call by call
//!
//! 1. [`Kernel::insert_upstream`] when the upstream connection is established and **before its first request is
//!    sent** (bytes that came earlier don't run the program); [`Kernel::insert_client`] any time before the first
//!    arming. Both can fail; the connection then goes by copy for its life. Count from here on every byte that is
//!    read from the upstream: `read`.
//! 2. Send the request, read the response's head, write head and all body bytes read so far to the client. Run them
//!    through a [`Framing`](router_common::framing::Framing). What is to be written after that is the kernel's.
//! 3. [`UpstreamSlot::arm`]. On [`Armed::MoreToRead`] and [`Armed::NoRoom`] keep reading and writing (step 2) and
//!    arm again after at least one byte. On [`Armed::Armed`] stop watching the upstream for input; watch it for `RDHUP | HUP | ERR`
//!    (an armed POLLIN is woken for every segment) and the client as ever. Neither read the upstream nor write the
//!    client.
//! 4. Wait for the flow's [`Event`] from [`EventRing::drain`], or from [`Kernel::sweep_dirty`], which the relay
//!    calls every [`SWEEP_INTERVAL`] so that a full ring strands nobody. Sample [`UpstreamSlot::arrived`] for the
//!    idle timeout.
//! 5. [`UpstreamSlot::take_back`], in every case: it says where the framing is, and makes the counts final.
//! 6. [`UpstreamSlot::drained`] until [`Drain::Drained`], asked at 0.1, 1, 5, 5, … ms: redirected bytes reach the
//!    client's socket through a kernel worker, and a `write` would overtake them. Give up after the client write
//!    timeout. Where [`Drain::Waiting`] stands still for 20 ms although the client polls writable, the kernel's
//!    workers get no CPU: arm nothing until that has passed.
//! 7. Framing done: the response is over; go to 8. Else read the upstream (EAGAIN after readiness is normal, and the
//!    event precedes the readiness), run the bytes through the framing, write them, and go to 3 where worth it. The
//!    bytes of [`TakenBack::framing`] begin exactly with the next one read. A client that spills again and again
//!    is slow: let the copy loop wait for it to be writable before arming again.
//! 8. The upstream returns to its pool with its slot if `slot.passed() == read` and no byte was read beyond the end
//!    of the message; compare again when it is lent, and close it where they differ. The client may get its next
//!    response. To close instead: drop the slot first, then shut down and close; a drained client, likewise.
//!
//! **End of the upstream** (RDHUP, HUP, ERR while armed): steps 5 and 6, then read on: what the program passed comes
//! first, then 0 or an error, which is a cut response unless the framing is done.
//!
//! **A client that leaves** (RDHUP, HUP, ERR): take back, drop the upstream's slot, shut the upstream down and close
//! it so that the engine stops; drop the client's slot; nothing to drain.
//!
//! # In-flight
//!
//! While a flow is the kernel's it is counted in its backend's cell ([`Kernel::in_flight`]); the program takes it
//! down at the end of the message, userspace at a take-back, whoever is first (`charge` is swapped to 0). The
//! cells count kernel flows only. What a policy decides by stays the guard that the relay holds for the whole
//! request and drops when it handles the end: later by the time that the event needs, never twice, never lost.
//!
//! # Memory
//!
//! A flow has at most [`Limits::flow_bytes_max`] bytes redirected and unacknowledged. Beyond that its bytes pass to
//! userspace ([`Event::Spilled`]), where the upstream's window closes as for any reader that doesn't read. All flows
//! together are bounded by [`Limits::total_bytes_max`]; beyond it [`UpstreamSlot::arm`] says [`Armed::NoRoom`].

mod btf;
mod events;
mod flow;
mod load;
mod memory;
mod slots;
mod socket;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray, RingBuf, SockMap};
use router_common::map::{BACKENDS_MAX, BackendCell, FlowEntry, counter};

pub use events::{Event, EventRing};
pub use flow::{Arm, Armed, Drain, FlowState, TakenBack};
pub use load::{FLOW_BYTES_MIN, KERNEL_MIN, Limits, Refusal, probe};
pub use router_common::map::RELAYS_MAX;
pub use slots::{ClientSlot, InsertError, UpstreamSlot};

use crate::types::BackendId;
use memory::{Flow, Table};
use slots::Places;

/// How often a relay looks for news that its ring had no room for.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// One upstream connection's place in the kernel's tables, for the life of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// The loaded programs and maps. Dropping the last handle, slot and ring unloads them.
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

/// The lock on a map is held for one system call (about 3 µs), twice in the life of a connection.
struct Inner {
    flows: Table<FlowEntry>,
    backends: Table<BackendCell>,
    counters: PerCpuArray<MapData, u64>,
    upstreams: Mutex<SockMap<MapData>>,
    clients: Mutex<SockMap<MapData>>,
    rings: Mutex<Vec<Option<RingBuf<MapData>>>>,
    flow_places: Places,
    client_places: Places,
    flow_bytes_max: u64,
    /// Flows that the kernel has, and how many it may have.
    armed: AtomicU64,
    armed_max: u64,
    /// Holds the program and its attachment.
    _programs: Mutex<Ebpf>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("flow_bytes_max", &self.flow_bytes_max)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Kernel {
    /// Loads the programs.
    ///
    /// # Errors
    /// Why the kernel path isn't available, with the remedy; everything goes by copy then.
    pub fn load(limits: Limits) -> Result<Kernel, Refusal> {
        load::load(limits).map(|inner| Kernel(Arc::new(inner)))
    }

    /// Takes an upstream connection in; it must be established and must not have received anything.
    ///
    /// # Errors
    /// The tables are full or the kernel refuses the socket; the connection goes by copy.
    pub fn insert_upstream(&self, fd: BorrowedFd<'_>) -> Result<UpstreamSlot, InsertError> {
        UpstreamSlot::insert(self, fd)
    }

    /// Takes a client connection in, as a target of redirects.
    ///
    /// # Errors
    /// The tables are full or the kernel refuses the socket; the connection goes by copy.
    pub fn insert_client(&self, fd: BorrowedFd<'_>) -> Result<ClientSlot, InsertError> {
        ClientSlot::insert(self, fd)
    }

    /// The event ring of a relay, once; `None` = taken already, or `relay` isn't below [`RELAYS_MAX`].
    #[must_use]
    pub fn events(&self, relay: u32) -> Option<EventRing> {
        EventRing::take(self, relay)
    }

    /// Calls `each` for the flows of `relay` whose news its ring had no room for. Looks at live flows only.
    pub fn sweep_dirty(&self, relay: u32, each: impl FnMut(FlowId, Event)) {
        events::sweep(&self.0, relay, each);
    }

    /// Flows of a backend that the kernel has now.
    #[must_use]
    pub fn in_flight(&self, backend: BackendId) -> u32 {
        self.0.backends.in_flight(backend.0).load(Ordering::Relaxed)
    }

    /// Upstream and client connections in the maps.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        (
            self.0.flow_places.taken().count(),
            self.0.client_places.taken().count(),
        )
    }

    /// The program's counters by name, summed over the CPUs. One system call each.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let sum = |index: u32| {
            self.0
                .counters
                .get(&index, 0)
                .map_or(0, |values| values.iter().sum())
        };
        counter::NAMES
            .iter()
            .zip(0..)
            .map(|(name, index)| (*name, sum(index)))
            .collect()
    }

    /// Bytes that the kernel has redirected since the programs were loaded.
    #[must_use]
    pub fn redirected_bytes(&self) -> u64 {
        self.0
            .counters
            .get(&counter::REDIRECTED_BYTES, 0)
            .map_or(0, |values| values.iter().sum())
    }
}

impl Inner {
    fn flow(&self, id: FlowId) -> Flow<'_> {
        self.flows.flow(id)
    }

    /// Counts a flow into its backend's cell.
    fn charge(&self, flow: Flow<'_>, backend: BackendId) {
        let index = backend.0.min(BACKENDS_MAX - 1);
        self.backends.in_flight(index).fetch_add(1, Ordering::SeqCst);
        flow.charge().store(index + 1, Ordering::SeqCst);
    }

    /// Counts it out, unless the program has done so.
    fn discharge(&self, flow: Flow<'_>) {
        let charge = flow.charge().swap(0, Ordering::SeqCst);
        if charge != 0 {
            self.backends.in_flight(charge - 1).fetch_sub(1, Ordering::SeqCst);
        }
    }
}
