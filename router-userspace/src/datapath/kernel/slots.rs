//! Places in the maps: claimed when a connection is opened, given back when its slot is dropped.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::MapError;
use router_common::map::{FLOW_PROBES, flow_index, state};

use super::memory::Flow;
use super::{FlowId, Inner, Kernel, socket};

/// Why a connection can't be carried by the kernel; it goes by copy then.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// All places are taken.
    #[error("no free place in the kernel's tables")]
    Full,
    /// The connection isn't established, or the kernel refuses this kind of socket.
    #[error("the kernel refused the socket: {0}")]
    Socket(#[source] io::Error),
}

/// Which places of a map are taken.
#[derive(Debug)]
pub(super) struct Places {
    words: Vec<AtomicU64>,
    /// Where the next search begins.
    next: AtomicU64,
}

impl Places {
    /// `count` free places; a multiple of 64.
    pub(super) fn new(count: u32) -> Places {
        Places {
            words: (0..count / 64).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(0),
        }
    }

    /// Claims one place; `false` = it is taken.
    fn claim(&self, place: u32) -> bool {
        let bit = 1 << (place % 64);
        self.words[(place / 64) as usize].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Claims any place. A search from where the last one ended, at most once round.
    fn claim_any(&self) -> Option<u32> {
        let count = self.words.len() as u64;
        let start = self.next.load(Ordering::Relaxed);
        for step in 0..count {
            let index = (start + step) % count;
            let free = !self.words[index as usize].load(Ordering::Relaxed);
            if free == 0 {
                continue;
            }
            let place = index as u32 * 64 + free.trailing_zeros();
            if self.claim(place) {
                self.next.store(index, Ordering::Relaxed);
                return Some(place);
            }
        }
        None
    }

    fn release(&self, place: u32) {
        self.words[(place / 64) as usize].fetch_and(!(1 << (place % 64)), Ordering::AcqRel);
    }

    /// The places that are taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut bits = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let place = (bits != 0).then(|| index as u32 * 64 + bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(place)
            })
        })
    }
}

fn refused(error: MapError) -> InsertError {
    InsertError::Socket(match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    })
}

/// An upstream connection in the kernel's maps. Dropping it takes the connection out.
///
/// Drop it before the connection is closed, and, unless its client is gone, only once the client is drained
/// ([`UpstreamSlot::drained`]).
#[derive(Debug)]
pub struct UpstreamSlot {
    pub(super) inner: Arc<Inner>,
    pub(super) id: FlowId,
    /// What the client's socket had been given when the flow was armed last.
    pub(super) queued_at_arm: u64,
    /// What the flow had redirected when it was armed last.
    pub(super) redirected_at_arm: u64,
    /// Whether it is in the number of armed flows.
    pub(super) counted: bool,
}

impl UpstreamSlot {
    pub(super) fn insert(kernel: &Kernel, fd: BorrowedFd<'_>) -> Result<UpstreamSlot, InsertError> {
        let inner = &kernel.0;
        let cookie = socket::cookie(fd).map_err(InsertError::Socket)?;
        let place = (0..FLOW_PROBES)
            .map(|probe| flow_index(cookie, probe))
            .find(|place| inner.flow_places.claim(*place))
            .ok_or(InsertError::Full)?;
        // From here on the drop gives the place back.
        let slot = UpstreamSlot {
            inner: Arc::clone(inner),
            id: FlowId(place),
            queued_at_arm: 0,
            redirected_at_arm: 0,
            counted: false,
        };
        let flow = slot.flow();
        flow.clear();
        flow.index().store(place, Ordering::Relaxed);
        flow.cookie().store(cookie, Ordering::Release);
        let mut map = inner
            .upstreams
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let inserted = map.set(place, &fd, 0);
        drop(map);
        inserted.map_err(refused)?;
        Ok(slot)
    }

    /// The flow's name in events.
    #[must_use]
    pub fn id(&self) -> FlowId {
        self.id
    }

    pub(super) fn flow(&self) -> Flow<'_> {
        self.inner.flow(self.id)
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.uncount();
        self.flow().state().swap(state::USER, Ordering::SeqCst);
        let mut map = self
            .inner
            .upstreams
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // Already out where the connection was closed first; nothing to do about any other failure.
        let _ = map.clear_index(&self.id.0);
        drop(map);
        self.inner.discharge(self.flow());
        self.flow().clear();
        self.inner.flow_places.release(self.id.0);
    }
}

/// A client connection in the kernel's maps. Dropping it takes the connection out: only once drained, or gone.
#[derive(Debug)]
pub struct ClientSlot {
    inner: Arc<Inner>,
    pub(super) place: u32,
}

impl ClientSlot {
    pub(super) fn insert(kernel: &Kernel, fd: BorrowedFd<'_>) -> Result<ClientSlot, InsertError> {
        let inner = &kernel.0;
        let place = inner.client_places.claim_any().ok_or(InsertError::Full)?;
        let slot = ClientSlot {
            inner: Arc::clone(inner),
            place,
        };
        let mut map = inner
            .clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let inserted = map.set(place, &fd, 0);
        drop(map);
        inserted.map_err(refused)?;
        Ok(slot)
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut map = self
            .inner
            .clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = map.clear_index(&self.place);
        drop(map);
        self.inner.client_places.release(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_claimed_once_and_a_full_table_says_so() {
        let places = Places::new(128);
        let mut claimed: Vec<u32> = (0..128).map(|_| places.claim_any().expect("free")).collect();
        claimed.sort_unstable();
        assert_eq!(claimed, (0..128).collect::<Vec<u32>>());
        assert_eq!(places.claim_any(), None);
        places.release(77);
        assert!(!places.claim(76));
        assert_eq!(places.claim_any(), Some(77));
        assert_eq!(places.taken().count(), 128);
    }
}
