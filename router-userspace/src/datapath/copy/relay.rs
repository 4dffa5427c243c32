//! The relay's thread: its queue, its epoll loop and its clock.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use slab::Slab;

use super::carried::{Carried, Interest, Next};
use crate::datapath::{Flow, Outcome};
use crate::telemetry::Metrics;
use crate::types::{Micros, now};

/// Bytes that one turn of one flow may receive.
const TURN_BYTES: usize = 64 << 10;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// How often the time limits of all flows are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// The epoll token of the queue's eventfd.
const QUEUE_TOKEN: u64 = u64::MAX;

/// The relay's limits.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Flows that may wait in its queue.
    pub queue_max: usize,
    /// Silence of the engine after which a response is cut.
    pub stream_idle: Duration,
    /// Time for which a client may take nothing while bytes wait for it.
    pub client_write: Duration,
}

/// A running relay; dropping the handle and all its clones leaves the thread running until `stop`.
#[derive(Debug)]
pub struct Relay {
    handle: RelayHandle,
    thread: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay's thread.
    ///
    /// # Errors
    /// What eventfd, epoll or the thread's creation answer.
    pub fn start(name: &str, config: RelayConfig, metrics: Arc<Metrics>) -> io::Result<Relay> {
        let (sender, receiver) = sync_channel(config.queue_max.max(1));
        let wake = Arc::new(event_fd()?);
        let stop = Arc::new(AtomicBool::new(false));
        let poll = Poll::new()?;
        poll.add(wake.as_raw_fd(), QUEUE_TOKEN, libc::EPOLLIN as u32)?;
        let handle = RelayHandle {
            sender,
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
        };
        let mut state = Loop {
            poll,
            receiver,
            wake,
            stop,
            config,
            metrics,
            flows: Slab::new(),
            buffer: vec![0; TURN_BYTES],
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || state.run())?;
        Ok(Relay { handle, thread })
    }

    /// What workers hand flows over with.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    /// Ends every flow as [`Outcome::Stopped`] and waits for the thread.
    pub fn stop(self) {
        self.handle.stop.store(true, Ordering::Release);
        self.handle.ring_bell();
        // A panicked relay has said so on stderr already.
        let _ = self.thread.join();
    }
}

/// The way into a relay.
#[derive(Clone, Debug)]
pub struct RelayHandle {
    sender: SyncSender<Flow>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl RelayHandle {
    /// Hands a flow over, or gives it back where the queue is full or the relay has ended.
    ///
    /// # Errors
    /// The flow itself, untouched.
    #[expect(clippy::result_large_err, reason = "the flow is moved either way")]
    pub fn hand_over(&self, flow: Flow) -> Result<(), Flow> {
        match self.sender.try_send(flow) {
            Ok(()) => {
                self.ring_bell();
                Ok(())
            }
            Err(TrySendError::Full(flow) | TrySendError::Disconnected(flow)) => Err(flow),
        }
    }

    fn ring_bell(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the descriptor is open and the pointer covers eight bytes. A full counter still wakes.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An epoll instance.
struct Poll {
    fd: OwnedFd,
}

impl Poll {
    fn new() -> io::Result<Poll> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us.
        Ok(Poll {
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    fn control(&self, operation: i32, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn add(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, events)
    }

    fn wait(&self, events: &mut [libc::epoll_event], timeout: Duration) -> usize {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let capacity = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: the pointer and the length come from one slice.
        let count =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), capacity, timeout_ms) };
        // EINTR is the only error that can happen here: it means nothing came.
        usize::try_from(count).unwrap_or(0)
    }
}

/// A flow in the slab, with what epoll is told of its two sockets.
struct Entry {
    carried: Carried,
    client_interest: Interest,
    upstream_interest: Interest,
}

struct Loop {
    poll: Poll,
    receiver: Receiver<Flow>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    config: RelayConfig,
    metrics: Arc<Metrics>,
    flows: Slab<Entry>,
    buffer: Vec<u8>,
}

impl Loop {
    fn run(&mut self) {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let mut next_sweep = now() + SWEEP_INTERVAL;
        while !self.stop.load(Ordering::Acquire) {
            let timeout = if self.flows.is_empty() {
                Duration::from_secs(60)
            } else {
                next_sweep.since(now())
            };
            // Rounded up, lest the loop spin through the last millisecond.
            let count = self.poll.wait(&mut events, timeout + Duration::from_millis(1));
            let at = now();
            let mut queue_rang = false;
            for event in &events[..count] {
                match event.u64 {
                    QUEUE_TOKEN => queue_rang = true,
                    token => self.turn(token, event.events, at),
                }
            }
            // After the events, so that a new flow can't take the slot of one that an event still names.
            if queue_rang {
                self.take_in(at);
            }
            if at >= next_sweep {
                next_sweep = at + SWEEP_INTERVAL;
                self.sweep(at);
            }
        }
        self.end_all();
    }

    fn take_in(&mut self, at: Micros) {
        let mut count = [0u8; 8];
        // SAFETY: the descriptor is open and the buffer holds eight bytes.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        loop {
            let flow = match self.receiver.try_recv() {
                Ok(flow) => flow,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            };
            self.metrics.flow_begins("copy");
            let carried = Carried::new(flow, at);
            let key = self.flows.insert(Entry {
                carried,
                client_interest: Interest::Off,
                upstream_interest: Interest::Off,
            });
            // Bytes that were read ahead go out before anything is waited for.
            self.act(key, |carried, buffer| carried.begin(buffer, at));
        }
    }

    fn turn(&mut self, token: u64, events: u32, at: Micros) {
        let key = (token >> 1) as usize;
        if !self.flows.contains(key) {
            return;
        }
        if token & 1 == 0 {
            self.act(key, |carried, buffer| carried.upstream_ready(events, buffer, at));
        } else {
            self.act(key, |carried, buffer| carried.client_ready(events, buffer, at));
        }
    }

    fn act(&mut self, key: usize, step: impl FnOnce(&mut Carried, &mut [u8]) -> Next) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        match step(&mut entry.carried, &mut self.buffer) {
            Next::Wait => self.watch(key),
            Next::End(outcome) => self.end(key, outcome),
        }
    }

    /// Tells epoll what the flow waits for, where that has changed.
    fn watch(&mut self, key: usize) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let token = (key as u64) << 1;
        let client = (
            entry.carried.client_fd(),
            entry.carried.client_interest(),
            token | 1,
        );
        let upstream = (
            entry.carried.upstream_fd(),
            entry.carried.upstream_interest(),
            token,
        );
        let told_client = self
            .poll
            .tell(client.0, client.2, &mut entry.client_interest, client.1);
        let told_upstream = self
            .poll
            .tell(upstream.0, upstream.2, &mut entry.upstream_interest, upstream.1);
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
        self.metrics.flow_ends("copy");
        self.metrics.count_flow_bytes("copy", entry.carried.bytes());
        entry.carried.finish(outcome);
    }

    fn sweep(&mut self, at: Micros) {
        let late: Vec<(usize, Outcome)> = self
            .flows
            .iter()
            .filter_map(|(key, entry)| {
                entry
                    .carried
                    .overdue(&self.config, at)
                    .map(|outcome| (key, outcome))
            })
            .collect();
        for (key, outcome) in late {
            self.end(key, outcome);
        }
    }

    fn end_all(&mut self) {
        let keys: Vec<usize> = self.flows.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.end(key, Outcome::Stopped);
        }
        while let Ok(flow) = self.receiver.try_recv() {
            Carried::new(flow, now()).finish(Outcome::Stopped);
        }
    }
}

impl Poll {
    fn tell(&self, fd: RawFd, token: u64, told: &mut Interest, wanted: Interest) -> io::Result<()> {
        if *told == wanted {
            return Ok(());
        }
        // A socket that isn't waited for is taken out: HUP and ERR are reported whatever is asked, and a
        // level-triggered report that nobody acts on would spin.
        let operation = match (*told, wanted) {
            (_, Interest::Off) => libc::EPOLL_CTL_DEL,
            (Interest::Off, _) => libc::EPOLL_CTL_ADD,
            _ => libc::EPOLL_CTL_MOD,
        };
        *told = wanted;
        self.control(operation, fd, token, wanted.events())
    }
}
