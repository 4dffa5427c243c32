//! The relay's epoll loop and its clock.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use slab::Slab;

use super::carried::{Carried, IN, Next};
use super::hop_turns::Hop;
use super::kernel_side::Mode;
use super::poll::{Interest, Poll};
use super::scheduling::{Change, Guard, SchedulingClass, set_fifo, thread_cpu};
use super::thread::{KernelRelay, RelayConfig};
use crate::datapath::kernel::{
    Event, EventRing, FlowId, SWEEP_INTERVAL as NEWS_SWEEP_INTERVAL, UpstreamSlot,
};
use crate::datapath::{Flow, FlowKind, Outcome};
use crate::telemetry::{CopyReason, Metrics};
use crate::types::{Micros, now};

/// Bytes that one turn of one flow may receive.
const TURN_BYTES: usize = 64 << 10;
/// Events taken from the kernel at once: what a turn may do before a real-time relay looks at its clock again.
const EVENTS_MAX: usize = 64;
/// How often the time limits of all flows are looked at.
const LIMITS_INTERVAL: Duration = Duration::from_millis(500);
/// How long a relay without flows sleeps.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// The epoll token of the queue's eventfd.
const QUEUE_TOKEN: u64 = u64::MAX;
/// The epoll token of the kernel path's event ring.
const NEWS_TOKEN: u64 = u64::MAX - 1;

/// The relay's end of the queue from its worker.
pub(super) struct Queue {
    receiver: Receiver<Flow>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Queue {
    pub(super) fn new(
        receiver: Receiver<Flow>,
        wake: Arc<OwnedFd>,
        stop: Arc<AtomicBool>,
        poll: &Poll,
    ) -> io::Result<Queue> {
        poll.add(wake.as_raw_fd(), QUEUE_TOKEN, IN)?;
        Ok(Queue { receiver, wake, stop })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Silences the bell; what rings after it is seen in the next turn.
    fn answer(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the descriptor is open and the buffer holds eight bytes.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// The relay's part in the kernel path.
pub(super) struct News {
    at: KernelRelay,
    ring: EventRing,
    /// For each [`FlowId`] the slab's key + 1; 0 = none of this relay's.
    keys: Vec<u32>,
    next_sweep: Micros,
    pub(super) hop: Hop,
}

impl News {
    pub(super) fn new(at: KernelRelay, poll: &Poll) -> io::Result<News> {
        let ring = at.kernel.events(at.relay).ok_or_else(|| {
            io::Error::other(format!(
                "the kernel path has no event ring for relay {}",
                at.relay
            ))
        })?;
        poll.add(ring.as_fd().as_raw_fd(), NEWS_TOKEN, IN)?;
        Ok(News {
            at,
            ring,
            keys: Vec::new(),
            next_sweep: Micros(0),
            hop: Hop::default(),
        })
    }

    fn note(&mut self, flow: FlowId, key: Option<usize>) {
        let place = flow.0 as usize;
        if self.keys.len() <= place {
            self.keys.resize(place + 1, 0);
        }
        self.keys[place] = key.map_or(0, |key| u32::try_from(key + 1).unwrap_or(0));
    }

    fn key(keys: &[u32], flow: FlowId) -> Option<usize> {
        let noted = keys.get(flow.0 as usize).copied().unwrap_or(0);
        (noted > 0).then(|| noted as usize - 1)
    }
}

/// A flow in the slab, with what epoll is told of its two sockets.
pub(super) struct Entry {
    pub(super) carried: Carried,
    client_interest: Interest,
    upstream_interest: Interest,
    path: &'static str,
}

/// All that a relay's thread owns.
pub(super) struct Loop {
    poll: Poll,
    queue: Queue,
    pub(super) news: Option<News>,
    config: RelayConfig,
    pub(super) metrics: Arc<Metrics>,
    pub(super) flows: Slab<Entry>,
    /// Flows whose client is being waited for; few at a time.
    draining: Vec<usize>,
    next_limits: Micros,
    buffer: Vec<u8>,
    told: Vec<(FlowId, Event)>,
}

impl Loop {
    pub(super) fn new(
        poll: Poll,
        queue: Queue,
        news: Option<News>,
        config: RelayConfig,
        metrics: Arc<Metrics>,
    ) -> Loop {
        Loop {
            poll,
            queue,
            news,
            config,
            metrics,
            flows: Slab::new(),
            draining: Vec::new(),
            next_limits: Micros(0),
            buffer: vec![0; TURN_BYTES],
            told: Vec::new(),
        }
    }

    /// Carries flows until the relay is stopped.
    pub(super) fn run(&mut self, class: SchedulingClass) {
        let mut guard = (class == SchedulingClass::Fifo).then(|| Guard::new(now(), thread_cpu()));
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        while !self.queue.stopped() {
            let timeout = self.next_due().since(now());
            let count = self.poll.wait(&mut events, timeout);
            let at = now();
            let mut bell = false;
            for event in &events[..count] {
                match event.u64 {
                    QUEUE_TOKEN => bell = true,
                    NEWS_TOKEN => self.hear(at),
                    token => self.turn(token, event.events, at),
                }
            }
            // After the events, so that a new flow can't take the slot of one that an event still names.
            if bell {
                self.take_in(at);
            }
            self.look_after(at);
            if let Some(guard) = &mut guard {
                self.heed(guard.turn(now(), thread_cpu));
            }
        }
        self.end_all();
    }

    /// Changes the thread's scheduling as the guard says.
    fn heed(&self, change: Change) {
        let fifo = match change {
            Change::None => return,
            Change::StepDown => {
                self.metrics.relay_step_downs_total.inc();
                false
            }
            Change::StepUp => true,
        };
        // Refused only where the host has withdrawn what it granted; the relay then goes on as it is.
        let _ = set_fifo(fifo);
    }

    /// When something is to be done even if no event comes.
    fn next_due(&self) -> Micros {
        if self.flows.is_empty() {
            return now() + IDLE_INTERVAL;
        }
        let looks = self
            .draining
            .iter()
            .filter_map(|key| self.flows.get(*key)?.carried.next_look())
            .min();
        let sweep = self.news.as_ref().map(|news| news.next_sweep);
        [Some(self.next_limits), looks, sweep]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.next_limits)
    }

    fn take_in(&mut self, at: Micros) {
        self.queue.answer();
        while let Ok(flow) = self.queue.receiver.try_recv() {
            let path = self.path_of(&flow);
            self.metrics.flow_begins(path);
            let id = flow.upstream_slot.as_ref().map(UpstreamSlot::id);
            let mut carried = Carried::new(flow, at);
            carried.kernel.may_arm = true;
            let entry = Entry {
                carried,
                client_interest: Interest::Off,
                upstream_interest: Interest::Off,
                path,
            };
            let key = self.flows.insert(entry);
            if let (Some(news), Some(id)) = (&mut self.news, id) {
                news.note(id, Some(key));
            }
            // Bytes that were read ahead go out before anything is waited for.
            self.act(key, |carried, buffer| carried.begin(buffer, at));
        }
    }

    /// The way that a flow begins on, and the count of why it isn't the kernel's.
    fn path_of(&self, flow: &Flow) -> &'static str {
        let Some(news) = &self.news else {
            return "copy";
        };
        let reason = match &flow.kind {
            FlowKind::Tunnel => CopyReason::Tunnel,
            FlowKind::Dechunked(_) => CopyReason::Framing,
            FlowKind::Body(framing) if framing.is_until_close() => CopyReason::Framing,
            FlowKind::Body(_) if flow.upstream_slot.is_none() || flow.client_slot.is_none() => {
                CopyReason::InsertRefused
            }
            FlowKind::Body(_) if !news.hop.is_open() => CopyReason::HopStalled,
            FlowKind::Body(_) => return "kernel",
        };
        self.metrics.count_copy_flow(reason);
        "copy"
    }

    fn turn(&mut self, token: u64, events: u32, at: Micros) {
        let key = (token >> 1) as usize;
        if token & 1 == 0 {
            self.act(key, |carried, buffer| carried.upstream_ready(events, buffer, at));
        } else {
            self.act(key, |carried, buffer| carried.client_ready(events, buffer, at));
        }
    }

    /// Reads the kernel's news of this relay's flows.
    fn hear(&mut self, at: Micros) {
        let Some(news) = &mut self.news else { return };
        let told = &mut self.told;
        news.ring.drain(|flow, event| told.push((flow, event)));
        self.act_on_news(at);
    }

    fn act_on_news(&mut self, at: Micros) {
        let mut told = std::mem::take(&mut self.told);
        for (flow, event) in told.drain(..) {
            let key = self.news.as_ref().and_then(|news| News::key(&news.keys, flow));
            let Some(key) = key else { continue };
            if event == Event::Spilled {
                self.metrics.kernel_spills_total.inc();
            }
            self.act(key, |carried, _| carried.reclaim(Some(event), at));
        }
        self.told = told;
    }

    pub(super) fn act(&mut self, key: usize, step: impl FnOnce(&mut Carried, &mut [u8]) -> Next) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let next = step(&mut entry.carried, &mut self.buffer);
        let seen = entry.carried.kernel.seen.take();
        match next {
            Next::Wait => self.watch(key),
            Next::End(outcome) => self.end(key, outcome),
        }
        if let Some(seen) = seen {
            self.hop_seen(key, seen, now());
        }
    }

    /// Arms what can be armed, and tells epoll what the flow waits for, where that has changed.
    fn watch(&mut self, key: usize) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if let Some(news) = &mut self.news {
            let at = now();
            if news.hop.may_arm(at) && entry.carried.try_arm(news.at.relay) {
                news.hop.armed(key, at);
            }
        }
        if matches!(entry.carried.mode, Mode::Draining { .. }) && !self.draining.contains(&key) {
            self.draining.push(key);
        }
        let token = (key as u64) << 1;
        let client = (entry.carried.client_fd(), entry.carried.client_interest());
        let upstream = (entry.carried.upstream_fd(), entry.carried.upstream_interest());
        let told_client = self
            .poll
            .tell(client.0, token | 1, &mut entry.client_interest, client.1);
        let told_upstream = self
            .poll
            .tell(upstream.0, token, &mut entry.upstream_interest, upstream.1);
        if told_client.and(told_upstream).is_err() {
            self.end(
                key,
                Outcome::UpstreamCut("the relay could not watch the connection"),
            );
        }
    }

    fn end(&mut self, key: usize, outcome: Outcome) {
        let Some(mut entry) = self.flows.try_remove(key) else {
            return;
        };
        let _ = self.poll.tell(
            entry.carried.client_fd(),
            0,
            &mut entry.client_interest,
            Interest::Off,
        );
        let _ = self.poll.tell(
            entry.carried.upstream_fd(),
            0,
            &mut entry.upstream_interest,
            Interest::Off,
        );
        self.draining.retain(|draining| *draining != key);
        let id = entry.carried.flow.upstream_slot.as_ref().map(UpstreamSlot::id);
        if let (Some(news), Some(id)) = (&mut self.news, id) {
            news.note(id, None);
        }
        self.metrics.flow_ends(entry.path);
        let chunked = entry.carried.flow.chunked;
        let (bytes, kernel_bytes) = entry.carried.finish(outcome);
        if chunked {
            self.metrics.count_chunked_bytes("kernel", kernel_bytes);
            self.metrics.count_chunked_bytes("copy", bytes - kernel_bytes);
        }
        self.metrics.count_flow_bytes("kernel", kernel_bytes);
        self.metrics.count_flow_bytes("copy", bytes - kernel_bytes);
    }

    /// What is due by the clock.
    fn look_after(&mut self, at: Micros) {
        for key in std::mem::take(&mut self.draining) {
            self.act(key, |carried, _| carried.look(at));
        }
        if let Some(news) = &mut self.news
            && at >= news.next_sweep
        {
            news.next_sweep = at + NEWS_SWEEP_INTERVAL;
            let told = &mut self.told;
            news.at
                .kernel
                .sweep_dirty(news.at.relay, |flow, event| told.push((flow, event)));
            self.act_on_news(at);
            self.watch_hop(at);
        }
        if at >= self.next_limits {
            self.next_limits = at + LIMITS_INTERVAL;
            self.enforce_limits(at);
        }
    }

    fn enforce_limits(&mut self, at: Micros) {
        let mut late = Vec::new();
        for (key, entry) in &mut self.flows {
            if entry.carried.mode == Mode::Kernel {
                entry.carried.sample(at);
            }
            entry.carried.sample_client(at);
            if let Some(outcome) = entry.carried.overdue(&self.config, at) {
                late.push((key, outcome));
            }
        }
        for (key, outcome) in late {
            self.end(key, outcome);
        }
    }

    fn end_all(&mut self) {
        let keys: Vec<usize> = self.flows.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.end(key, Outcome::Stopped);
        }
        while let Ok(flow) = self.queue.receiver.try_recv() {
            Carried::new(flow, now()).finish(Outcome::Stopped);
        }
    }
}
