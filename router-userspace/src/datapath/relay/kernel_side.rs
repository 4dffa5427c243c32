//! A flow's time in the kernel: arming it, taking it back, and waiting until its client has what was redirected.

use std::os::fd::AsFd;
use std::time::Duration;

use super::carried::{Carried, Next};
use crate::datapath::kernel::{Arm, Armed, Drain, Event};
use crate::datapath::{FlowKind, Outcome};
use crate::types::Micros;

/// Bytes that may wait in a client's socket when a flow that was spilled is armed again: a client that is still
/// behind would spill at once.
const REARM_QUEUED_MAX: u32 = 64 << 10;
/// Waits between two looks at a client that has not been given everything; the last one repeats.
const DRAIN_WAITS: [Duration; 3] = [
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(5),
];

/// Who carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// This relay.
    Copy,
    /// The kernel, until an event says otherwise.
    Kernel,
    /// Nobody: what the kernel redirected is on its way into the client's socket, and a write would overtake it.
    Draining {
        since: Micros,
        look_at: Micros,
        looks: usize,
    },
}

/// What a flow remembers of the kernel path.
#[derive(Debug, Default)]
pub(super) struct KernelSide {
    /// Whether arming is worth a try: at the beginning, and after each byte that was read since a failed one.
    pub(super) may_arm: bool,
    /// Bytes that the kernel has carried.
    pub(super) bytes: u64,
    /// Bytes that had arrived when the flow was last sampled.
    arrived: u64,
    spilled: bool,
}

impl Carried {
    /// Whether the kernel could carry the rest of this flow.
    fn qualifies(&self) -> bool {
        let body = matches!(&self.flow.kind, FlowKind::Body(framing) if !framing.is_until_close());
        body && self.flow.upstream_slot.is_some() && self.flow.client_slot.is_some()
    }

    /// Gives the flow to the kernel where it qualifies and nothing is left to read or write.
    pub(super) fn try_arm(&mut self, relay: u32) {
        let ready =
            self.mode == Mode::Copy && self.kernel.may_arm && self.down.is_empty() && self.ending.is_none();
        if !ready || !self.qualifies() || (self.kernel.spilled && self.client_is_behind()) {
            return;
        }
        self.kernel.may_arm = false;
        let FlowKind::Body(framing) = self.flow.kind else {
            return;
        };
        let (Some(upstream), Some(client)) = (&mut self.flow.upstream_slot, &self.flow.client_slot) else {
            return;
        };
        let read = self.flow.upstream.bytes_read;
        let arm = Arm {
            framing,
            read,
            backend: self.flow.backend,
            relay,
        };
        // An error leaves the flow here; the copy finds out what is wrong with the socket.
        if let Ok(Armed::Armed) = upstream.arm(client, self.flow.client.as_fd(), &arm) {
            self.kernel.arrived = upstream.arrived();
            self.mode = Mode::Kernel;
        }
    }

    fn client_is_behind(&self) -> bool {
        let mut queued: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one int.
        let result = unsafe { libc::ioctl(self.flow.client.raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        result != 0 || u32::try_from(queued).unwrap_or(0) > REARM_QUEUED_MAX
    }

    /// Takes a flow back from the kernel, because of an event or because the engine's side has ended.
    pub(super) fn reclaim(&mut self, event: Option<Event>, at: Micros) -> Next {
        if self.mode != Mode::Kernel {
            return Next::Wait;
        }
        if event == Some(Event::Spilled) {
            self.kernel.spilled = true;
        }
        if !self.take_back(at) {
            return Next::End(Outcome::UpstreamCut("the engine's connection is gone"));
        }
        self.mode = Mode::Draining {
            since: at,
            look_at: at,
            looks: 0,
        };
        self.look(at)
    }

    /// Makes the flow this relay's and counts what the kernel did; `false` = its state can't be known.
    pub(super) fn take_back(&mut self, at: Micros) -> bool {
        let Some(slot) = &mut self.flow.upstream_slot else {
            return false;
        };
        self.mode = Mode::Copy;
        let Ok(back) = slot.take_back(self.flow.upstream.as_fd()) else {
            return false;
        };
        self.flow.kind = FlowKind::Body(back.framing);
        self.bytes += back.carried;
        self.kernel.bytes += back.carried;
        self.received_at = at;
        self.sample(at);
        true
    }

    /// Looks whether the client's socket has been given everything.
    pub(super) fn look(&mut self, at: Micros) -> Next {
        let Mode::Draining {
            since,
            look_at,
            looks,
        } = self.mode
        else {
            return Next::Wait;
        };
        if at < look_at {
            return Next::Wait;
        }
        let Some(slot) = &self.flow.upstream_slot else {
            return Next::End(Outcome::ClientLeft);
        };
        match slot.drained(self.flow.client.as_fd()) {
            Ok(Drain::Drained) => {
                self.mode = Mode::Copy;
                if matches!(&self.flow.kind, FlowKind::Body(framing) if framing.is_done()) {
                    self.ending = Some(Outcome::Complete);
                }
                self.settle()
            }
            Ok(Drain::Waiting(_)) => {
                let wait = DRAIN_WAITS[looks.min(DRAIN_WAITS.len() - 1)];
                self.mode = Mode::Draining {
                    since,
                    look_at: at + wait,
                    looks: looks + 1,
                };
                Next::Wait
            }
            Ok(Drain::Lost) | Err(_) => Next::End(Outcome::ClientLeft),
        }
    }

    /// When the next look at the client is due.
    pub(super) fn next_look(&self) -> Option<Micros> {
        match self.mode {
            Mode::Draining { look_at, .. } => Some(look_at),
            Mode::Copy | Mode::Kernel => None,
        }
    }

    /// Notes what has come while the kernel carried the flow: nobody reads it here.
    pub(super) fn sample(&mut self, at: Micros) {
        let Some(slot) = &self.flow.upstream_slot else {
            return;
        };
        let arrived = slot.arrived();
        if arrived > self.kernel.arrived {
            self.flow.progress.note(arrived - self.kernel.arrived, at);
            self.kernel.arrived = arrived;
            self.received_at = at;
        }
    }
}
