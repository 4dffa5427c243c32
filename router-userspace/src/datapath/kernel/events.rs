//! News from the program.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::maps::{MapData, RingBuf};
use router_common::map::{EventRecord, event};
use zerocopy::FromBytes;

use super::{FlowId, Inner, Kernel};

/// What happened to a flow that the kernel had; it is userspace's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The message has ended and all of it was redirected.
    Ended,
    /// Bytes wait to be read: they came before userspace had read all.
    Unread,
    /// Bytes wait to be read: the client is too far behind.
    Spilled,
    /// Bytes wait to be read: malformed framing, or bytes behind the end of the message.
    Framing,
    /// Bytes wait to be read: the client's socket is gone.
    ClientGone,
}

impl Event {
    fn from_bits(bits: u32) -> Option<Event> {
        // A flow is given back once for each time it is armed, so that one bit is set at most.
        Some(match bits {
            0 => return None,
            event::ENDED => Event::Ended,
            event::PASSED_SPILL => Event::Spilled,
            event::PASSED_FRAMING => Event::Framing,
            event::PASSED_CLIENT_GONE => Event::ClientGone,
            _ => Event::Unread,
        })
    }
}

/// The event ring of one relay: its descriptor is readable while there is news.
pub struct EventRing {
    inner: Arc<Inner>,
    ring: RingBuf<MapData>,
}

impl std::fmt::Debug for EventRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventRing")
            .field("fd", &self.as_fd())
            .finish_non_exhaustive()
    }
}

impl AsFd for EventRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl EventRing {
    pub(super) fn take(kernel: &Kernel, relay: u32) -> Option<EventRing> {
        let mut rings = kernel
            .0
            .rings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let ring = rings.get_mut(relay as usize)?.take()?;
        Some(EventRing {
            inner: Arc::clone(&kernel.0),
            ring,
        })
    }

    /// Reads all news there is and calls `each` once for each.
    ///
    /// News of a connection that is gone, or that a sweep has told already, is left out.
    pub fn drain(&mut self, mut each: impl FnMut(FlowId, Event)) {
        while let Some(item) = self.ring.next() {
            let Ok(record) = EventRecord::read_from_bytes(&item) else {
                continue;
            };
            drop(item);
            let id = FlowId(record.flow);
            let flow = self.inner.flow(id);
            if flow.cookie().load(Ordering::Acquire) != record.cookie {
                continue;
            }
            if let Some(event) = Event::from_bits(flow.dirty().swap(0, Ordering::AcqRel)) {
                each(id, event);
            }
        }
    }
}

/// Finds the news of `relay` that its ring had no room for.
pub(super) fn sweep(inner: &Inner, relay: u32, mut each: impl FnMut(FlowId, Event)) {
    for place in inner.flow_places.taken() {
        let id = FlowId(place);
        let flow = inner.flow(id);
        if flow.relay().load(Ordering::Relaxed) != relay || flow.dirty().load(Ordering::Relaxed) == 0 {
            continue;
        }
        if let Some(event) = Event::from_bits(flow.dirty().swap(0, Ordering::AcqRel)) {
            each(id, event);
        }
    }
}
