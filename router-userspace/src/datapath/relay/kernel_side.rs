//! A flow's time in the kernel: arming it, taking it back, and waiting until its client has what was redirected.

use std::os::fd::AsFd;
use std::time::Duration;

use super::carried::{Carried, Next};
use super::hop::{Seen, Standing};
use crate::datapath::kernel::{Arm, Armed, Drain, Event};
use crate::datapath::{FlowKind, Outcome};
use crate::net;
use crate::types::Micros;

/// Bytes that may wait in a client's socket when a flow that was spilled is armed again: a client that is still
/// behind would spill at once.
const REARM_QUEUED_MAX: u64 = 64 << 10;
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
        /// When it last took some of it.
        since: Micros,
        /// Bytes that waited at the last look.
        waiting: u64,
        look_at: Micros,
        looks: usize,
        standing: Standing,
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
    /// Bytes that the kernel carried when it last had the flow.
    carried: u64,
    /// What the flow has seen of the hop, for the relay's watch.
    pub(super) seen: Option<Seen>,
    /// How its bytes move while the kernel has it, where it is looked at.
    standing: Option<Standing>,
}

impl Carried {
    /// Whether the kernel could carry the rest of this flow.
    fn qualifies(&self) -> bool {
        let body = matches!(&self.flow.kind, FlowKind::Body(framing) if !framing.is_until_close());
        body && self.flow.upstream_slot.is_some() && self.flow.client_slot.is_some()
    }

    /// Gives the flow to the kernel where it qualifies and nothing is left to read or write; `true` = it was given.
    pub(super) fn try_arm(&mut self, relay: u32) -> bool {
        let ready =
            self.mode == Mode::Copy && self.kernel.may_arm && self.down.is_empty() && self.ending.is_none();
        // The first byte has to be seen here: it is what policies and operators go by.
        let ready = ready && self.flow.first_byte.is_none();
        if !ready || !self.qualifies() || (self.kernel.spilled && self.client_is_behind()) {
            return false;
        }
        self.kernel.may_arm = false;
        let FlowKind::Body(framing) = self.flow.kind else {
            return false;
        };
        let (Some(upstream), Some(client)) = (&mut self.flow.upstream_slot, &self.flow.client_slot) else {
            return false;
        };
        let read = self.flow.upstream.bytes_read;
        let arm = Arm {
            framing,
            read,
            backend: self.flow.backend,
            relay,
        };
        // An error leaves the flow here; the copy finds out what is wrong with the socket.
        let armed = matches!(
            upstream.arm(client, self.flow.client.as_fd(), &arm),
            Ok(Armed::Armed)
        );
        if armed {
            self.kernel.arrived = upstream.arrived();
            self.kernel.standing = None;
            self.mode = Mode::Kernel;
        }
        armed
    }

    fn client_is_behind(&self) -> bool {
        net::unacked_bytes(&self.flow.client).map_or(true, |queued| queued > REARM_QUEUED_MAX)
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
            waiting: u64::MAX,
            look_at: at,
            looks: 0,
            standing: Standing::new(at),
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
        self.kernel.carried = back.carried;
        self.kernel.bytes += back.carried;
        self.received_at = at;
        self.sample(at);
        true
    }

    /// Looks whether the client's socket has been given everything.
    pub(super) fn look(&mut self, at: Micros) -> Next {
        let Mode::Draining {
            since,
            waiting,
            look_at,
            looks,
            mut standing,
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
                if self.kernel.carried > 0 {
                    self.kernel.seen = Some(Seen::Drained(at.since(since)));
                }
                if matches!(&self.flow.kind, FlowKind::Body(framing) if framing.is_done()) {
                    self.ending = Some(Outcome::Complete);
                }
                self.settle()
            }
            Ok(Drain::Waiting(now_waiting)) => {
                let given = self.kernel.carried.saturating_sub(now_waiting);
                if standing.stalled(given, self.client_has_room(), at) {
                    self.kernel.seen = Some(Seen::Stalled);
                }
                let wait = DRAIN_WAITS[looks.min(DRAIN_WAITS.len() - 1)];
                self.mode = Mode::Draining {
                    // A slow client has its time anew whenever it takes some.
                    since: if now_waiting < waiting { at } else { since },
                    waiting: now_waiting,
                    look_at: at + wait,
                    looks: looks + 1,
                    standing,
                };
                Next::Wait
            }
            Ok(Drain::Lost) | Err(_) => Next::End(Outcome::ClientLeft),
        }
    }

    /// Whether the client's socket would take more.
    fn client_has_room(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.flow.client.raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one valid pollfd, and no wait.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLOUT != 0
    }

    /// Looks how the bytes of a flow that the kernel has move; `true` = some wait, so that another look is due.
    pub(super) fn watch_hop(&mut self, at: Micros) -> bool {
        let (Mode::Kernel, Some(slot)) = (self.mode, &self.flow.upstream_slot) else {
            return false;
        };
        let before = slot.carried();
        let waiting = match slot.drained(self.flow.client.as_fd()) {
            Ok(Drain::Waiting(waiting)) => waiting,
            Ok(Drain::Drained | Drain::Lost) | Err(_) => {
                self.kernel.standing = None;
                return false;
            }
        };
        if slot.carried() != before {
            // The two halves of the reading are of different moments.
            return true;
        }
        let room = self.client_has_room();
        let standing = self.kernel.standing.get_or_insert_with(|| Standing::new(at));
        if standing.stalled(before.saturating_sub(waiting), room, at) {
            self.kernel.seen = Some(Seen::Stalled);
        }
        true
    }

    /// Whether the kernel has redirected bytes of the flow since it was given to it.
    pub(super) fn kernel_has_carried(&self) -> bool {
        self.mode == Mode::Kernel
            && self
                .flow
                .upstream_slot
                .as_ref()
                .is_some_and(|slot| slot.carried() > 0)
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
