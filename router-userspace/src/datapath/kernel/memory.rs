//! The maps that userspace has mapped, seen as atomic words.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use router_common::framing::Framing;
use router_common::map::{BackendCell, FlowEntry};

use super::FlowId;

/// An array map of `T`, shared with the kernel.
#[derive(Debug)]
pub(super) struct Table<T> {
    map: MmapRaw,
    length: u32,
    entries: PhantomData<*const T>,
}

// SAFETY: the memory is shared with the kernel anyway; `Table` hands it out as atomics, and the two plain fields
// (framing, identity) under the protocol of the flow's state.
unsafe impl<T> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    /// Maps an array map of `length` entries.
    pub(super) fn new(fd: BorrowedFd<'_>, length: u32) -> io::Result<Table<T>> {
        // The kernel lays array entries out at multiples of 8 bytes; sizes are multiples of 64 here.
        const { assert!(size_of::<T>().is_multiple_of(64)) };
        let map = MmapOptions::new()
            .len(size_of::<T>() * length as usize)
            .map_raw(fd.as_raw_fd())?;
        Ok(Table {
            map,
            length,
            entries: PhantomData,
        })
    }

    /// The entry at `index`; beyond the table, the last one.
    fn entry(&self, index: u32) -> *mut T {
        let index = index.min(self.length - 1);
        // SAFETY: the index is inside of the mapping.
        unsafe { self.map.as_mut_ptr().cast::<T>().add(index as usize) }
    }
}

impl Table<FlowEntry> {
    pub(super) fn flow(&self, id: FlowId) -> Flow<'_> {
        Flow(self.entry(id.0), PhantomData)
    }
}

impl Table<BackendCell> {
    /// The in-flight count of a backend; the ones beyond the table share its last cell.
    pub(super) fn in_flight(&self, backend: u32) -> &AtomicU32 {
        // SAFETY: a live, aligned word that both sides reach by atomic operations only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.entry(backend)).in_flight) }
    }
}

/// One flow's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow<'a>(*mut FlowEntry, PhantomData<&'a FlowEntry>);

macro_rules! words {
    ($($name:ident: $atomic:ident;)*) => {
        $(pub(super) fn $name(&self) -> &'a $atomic {
            // SAFETY: a live, aligned word of the mapping, reached by atomic operations only.
            unsafe { $atomic::from_ptr(&raw mut (*self.0).$name) }
        })*
    };
}

impl<'a> Flow<'a> {
    words! {
        cookie: AtomicU64;
        state: AtomicU32;
        client: AtomicU32;
        arrived: AtomicU64;
        passed: AtomicU64;
        redirected: AtomicU64;
        arm_at: AtomicU64;
        redirected_max: AtomicU64;
        acked_base: AtomicU64;
        dirty: AtomicU32;
        relay: AtomicU32;
        charge: AtomicU32;
        index: AtomicU32;
    }

    /// The framing. Right only while userspace owns the flow and no program run is under way.
    pub(super) fn framing(&self) -> Framing {
        // SAFETY: live and aligned; every bit pattern is a `Framing`.
        unsafe { (&raw const (*self.0).framing).read_volatile() }
    }

    /// Sets the framing. Only while userspace owns the flow; setting the state publishes it.
    pub(super) fn set_framing(&self, framing: Framing) {
        // SAFETY: live and aligned; the program reads it in state STREAM only.
        unsafe { (&raw mut (*self.0).framing).write_volatile(framing) }
    }

    /// Empties the entry. Only while its socket is in no map.
    pub(super) fn clear(&self) {
        for word in [
            self.arrived(),
            self.passed(),
            self.redirected(),
            self.arm_at(),
            self.redirected_max(),
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            self.state(),
            self.client(),
            self.dirty(),
            self.relay(),
            self.charge(),
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.acked_base().store(0, Ordering::Relaxed);
        self.set_framing(Framing::none());
        self.cookie().store(0, Ordering::Release);
    }
}
