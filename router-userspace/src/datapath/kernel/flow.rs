//! One flow: arming it, taking it back, waiting for its client.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use router_common::framing::{Framing, Progress};
use router_common::map::state;

use super::slots::{ClientSlot, UpstreamSlot};
use super::socket;
use crate::types::BackendId;

/// What a flow is armed with.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Where in the body the next byte from the upstream lies.
    pub framing: Framing,
    /// Bytes that userspace has read from the upstream since it was inserted.
    pub read: u64,
    /// Whose in-flight cell the flow is charged to.
    pub backend: BackendId,
    /// Whose event ring gets the news, below `RELAYS_MAX`.
    pub relay: u32,
}

/// What came of arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The kernel has the flow, or had it: an event tells when it is userspace's again. Nothing may be read from
    /// the upstream or written to the client until [`UpstreamSlot::take_back`].
    Armed,
    /// There are bytes to read, or about to be: the flow stays userspace's. Read at least one before arming again.
    MoreToRead,
    /// The kernel has as many flows as it may; the flow stays userspace's.
    NoRoom,
}

/// Who owns a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Userspace.
    User,
    /// The kernel, once the next byte comes.
    Armed,
    /// The kernel.
    Stream,
}

/// A flow that is userspace's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Where in the body the next byte from the upstream lies; done = the kernel carried the message's end.
    pub framing: Framing,
    /// Bytes redirected since the flow was armed.
    pub carried: u64,
    /// Bytes that wait for userspace to read them, by the program's count.
    pub unread: u64,
}

/// Whether the client's socket has been given all that was redirected to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// It has; userspace may write to it.
    Drained,
    /// So many bytes still wait for a kernel worker. Ask again in 0.1, 1, 5 ms; never spin.
    Waiting(u64),
    /// The client is gone; what waits never leaves.
    Lost,
}

impl UpstreamSlot {
    /// Gives the flow to the kernel: from its next byte on the upstream's bytes go to the client.
    ///
    /// The flow must be userspace's, all that was read must have been written to the client, and the client must be
    /// drained. Four system calls.
    ///
    /// # Errors
    /// `InvalidInput` for a body that the kernel can't carry (ended, malformed, or open until the connection
    /// closes), `NotConnected` where the client isn't established; else the socket's own error. The flow stays
    /// userspace's.
    pub fn arm(&mut self, client: &ClientSlot, client_fd: BorrowedFd<'_>, arm: &Arm) -> io::Result<Armed> {
        if arm.framing.progress() != Progress::More || arm.framing.is_until_close() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let inner = self.inner.clone();
        let flow = inner.flow(self.id);
        let redirected = flow.redirected().load(Ordering::Acquire);
        if flow.arrived().load(Ordering::SeqCst) != arm.read + redirected {
            return Ok(Armed::MoreToRead);
        }
        self.uncount();
        let side = socket::send_side(client_fd)?;
        if !side.established {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if inner.armed.fetch_add(1, Ordering::Relaxed) >= inner.armed_max {
            inner.armed.fetch_sub(1, Ordering::Relaxed);
            return Ok(Armed::NoRoom);
        }
        self.counted = true;
        self.queued_at_arm = side.queued;
        self.redirected_at_arm = redirected;
        // What the client owes is redirected + base - acked; now that is what userspace has written and the client
        // hasn't acknowledged.
        let base = side.queued.wrapping_sub(redirected);
        let window = (side.acked.wrapping_sub(base) as i64).saturating_add_unsigned(inner.flow_bytes_max);
        flow.client().store(client.place, Ordering::Relaxed);
        flow.relay().store(arm.relay, Ordering::Relaxed);
        flow.acked_base().store(base, Ordering::Relaxed);
        flow.redirected_max()
            .store(u64::try_from(window).unwrap_or(0), Ordering::Relaxed);
        flow.arm_at().store(arm.read, Ordering::Relaxed);
        flow.dirty().store(0, Ordering::Relaxed);
        flow.set_framing(arm.framing);
        inner.charge(flow, arm.backend);
        flow.state().swap(state::ARMED, Ordering::SeqCst);
        // The program counts an arrival before it looks at the state. If one was counted since, it may have seen
        // USER and passed without an event: take the flow back, unless the program has done more with it.
        if flow.arrived().load(Ordering::SeqCst) != arm.read + redirected {
            let back =
                flow.state()
                    .compare_exchange(state::ARMED, state::USER, Ordering::SeqCst, Ordering::SeqCst);
            if back.is_ok() {
                inner.discharge(flow);
                self.uncount();
                return Ok(Armed::MoreToRead);
            }
        }
        Ok(Armed::Armed)
    }

    /// Makes the flow userspace's, whoever has it, and says how it stands. One system call.
    ///
    /// To be called after every event, and to abort. The charge is taken if the program hasn't.
    ///
    /// # Errors
    /// The upstream socket's own error; the flow is userspace's in any case.
    pub fn take_back(&mut self, upstream_fd: BorrowedFd<'_>) -> io::Result<TakenBack> {
        self.uncount();
        let flow = self.flow();
        flow.state().swap(state::USER, Ordering::SeqCst);
        self.inner.discharge(flow);
        // A run that saw STREAM before the swap may still be redirecting.
        socket::settle(upstream_fd)?;
        flow.dirty().store(0, Ordering::Release);
        Ok(TakenBack {
            framing: flow.framing(),
            carried: self.carried(),
            unread: flow.passed().load(Ordering::Acquire) - flow.arm_at().load(Ordering::Relaxed),
        })
    }

    /// Whether the client's socket has been given all that this flow redirected. Three system calls.
    ///
    /// Only for a flow that was taken back, and before userspace writes to the client again. `client_fd` is the
    /// connection it was armed with.
    ///
    /// # Errors
    /// The client socket's own error, which means that it is gone.
    pub fn drained(&self, client_fd: BorrowedFd<'_>) -> io::Result<Drain> {
        let carried = self.carried();
        if carried == 0 {
            return Ok(Drain::Drained);
        }
        let side = match socket::send_side(client_fd) {
            Ok(side) => side,
            // The client acknowledges faster than one can look; it's moving.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Drain::Waiting(carried)),
            Err(error) => return Err(error),
        };
        if side.closed {
            return Ok(Drain::Lost);
        }
        let given = side.queued.wrapping_sub(self.queued_at_arm);
        Ok(match carried.saturating_sub(given) {
            0 => Drain::Drained,
            waiting => Drain::Waiting(waiting),
        })
    }

    /// Takes the flow out of the number of armed ones, where it is in it.
    pub(super) fn uncount(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.inner.armed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Who owns the flow now.
    #[must_use]
    pub fn state(&self) -> FlowState {
        match self.flow().state().load(Ordering::Acquire) {
            state::ARMED => FlowState::Armed,
            state::STREAM => FlowState::Stream,
            _ => FlowState::User,
        }
    }

    /// Bytes that have come from the upstream since it was inserted: when it stands still, the stream is idle.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.flow().arrived().load(Ordering::Acquire)
    }

    /// Bytes redirected since the connection was inserted.
    #[must_use]
    pub fn redirected(&self) -> u64 {
        self.flow().redirected().load(Ordering::Acquire)
    }

    /// Bytes given to userspace since the connection was inserted. A connection may return to its pool only when
    /// this equals what userspace has read.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.flow().passed().load(Ordering::Acquire)
    }

    /// Bytes redirected since the flow was armed.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.redirected() - self.redirected_at_arm
    }
}
