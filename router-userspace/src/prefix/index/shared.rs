//! What readers and the writer of the index share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::table::{SLOTS_MAX, Table};
use super::walk::{Scratch, walk};
use crate::types::{BackendId, Micros};

/// The owner of a slot that no backend uses.
pub(super) const NOBODY: u32 = u32::MAX;
/// An `oldest_use` of a mirror with room.
pub(super) const HAS_ROOM: u64 = u64::MAX;

/// What the table is about.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: ArcSwap<Table>,
    /// Backend of each slot. A backend that forgets everything gets another slot: the old one's bits stay in the
    /// table until the writer has come round to them, but nobody counts them any more.
    pub(super) owners: Box<[AtomicU32]>,
    pub(super) views: Box<[View]>,
}

/// What is known of one backend's mirror without looking into it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) slot: AtomicU32,
    /// How often it has been told to forget everything.
    pub(super) generation: AtomicU32,
    pub(super) oldest_use_us: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) capacity_blocks: AtomicU64,
}

/// Which backends hold how much of a prompt: the readers' side of the index. Clones share it.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    pub(super) shared: Arc<Shared>,
}

/// How many leading blocks of one prompt each backend holds, with the buffers to find out.
#[derive(Debug, Default)]
pub struct OverlapScores {
    depths: Vec<u32>,
    holders: Vec<BackendId>,
    scratch: Scratch,
}

impl OverlapScores {
    /// Leading blocks held by `backend`.
    #[must_use]
    pub fn depth(&self, backend: BackendId) -> u32 {
        self.depths.get(backend.0 as usize).copied().unwrap_or(0)
    }

    /// The backends that hold any, in no particular order.
    #[must_use]
    pub fn holders(&self) -> &[BackendId] {
        &self.holders
    }

    fn clear(&mut self, backends: usize) {
        for holder in self.holders.drain(..) {
            self.depths[holder.0 as usize] = 0;
        }
        self.depths.resize(backends, 0);
    }
}

impl PrefixIndex {
    pub(super) fn new(backends: usize, slots: usize, table: Table) -> PrefixIndex {
        debug_assert!(backends <= slots && slots <= SLOTS_MAX);
        let owner = |slot: usize| AtomicU32::new(if slot < backends { slot as u32 } else { NOBODY });
        let view = |slot: usize| View {
            slot: AtomicU32::new(slot as u32),
            generation: AtomicU32::new(0),
            oldest_use_us: AtomicU64::new(HAS_ROOM),
            blocks: AtomicU64::new(0),
            capacity_blocks: AtomicU64::new(0),
        };
        PrefixIndex {
            shared: Arc::new(Shared {
                table: ArcSwap::from_pointee(table),
                owners: (0..slots).map(owner).collect(),
                views: (0..backends).map(view).collect(),
            }),
        }
    }

    /// Finds how many leading `blocks` each backend holds. Takes no lock; what the writer changes meanwhile may
    /// or may not be seen.
    pub fn overlap(&self, blocks: &[u64], scores: &mut OverlapScores) {
        scores.clear(self.shared.views.len());
        let table = self.shared.table.load();
        let OverlapScores {
            depths,
            holders,
            scratch,
        } = scores;
        walk(
            blocks,
            table.row_words(),
            scratch,
            &|hash, words| table.read(hash, words),
            &mut |slot, depth| {
                let owner = self.shared.owners.get(slot);
                let owner = owner.map_or(NOBODY, |owner| owner.load(Ordering::Relaxed));
                if let Some(held) = depths.get_mut(owner as usize) {
                    if *held == 0 {
                        holders.push(BackendId(owner));
                    }
                    *held = (*held).max(depth as u32);
                }
            },
        );
    }

    /// When the block that `backend` would evict next was last used; `None` while it has room.
    #[must_use]
    pub fn oldest_use(&self, backend: BackendId) -> Option<Micros> {
        let view = self.view(backend)?;
        match view.oldest_use_us.load(Ordering::Relaxed) {
            HAS_ROOM => None,
            micros => Some(Micros(micros)),
        }
    }

    /// Blocks that `backend`'s mirror holds and can hold.
    #[must_use]
    pub fn fill(&self, backend: BackendId) -> (u64, u64) {
        self.view(backend).map_or((0, 0), |view| {
            (
                view.blocks.load(Ordering::Relaxed),
                view.capacity_blocks.load(Ordering::Relaxed),
            )
        })
    }

    /// Forgets all that `backend` holds, at once for every reader: it has restarted or is gone. O(1).
    pub fn forget(&self, backend: BackendId) {
        let Some(view) = self.view(backend) else { return };
        view.generation.fetch_add(1, Ordering::AcqRel);
        let slot = view.slot.load(Ordering::Acquire);
        self.shared.owners[slot as usize].store(NOBODY, Ordering::Release);
        view.oldest_use_us.store(HAS_ROOM, Ordering::Relaxed);
        view.blocks.store(0, Ordering::Relaxed);
    }

    /// How often `backend` has been told to forget: what is sent to it now belongs to that generation.
    #[must_use]
    pub fn generation(&self, backend: BackendId) -> u32 {
        self.view(backend)
            .map_or(0, |view| view.generation.load(Ordering::Acquire))
    }

    fn view(&self, backend: BackendId) -> Option<&View> {
        self.shared.views.get(backend.0 as usize)
    }
}
