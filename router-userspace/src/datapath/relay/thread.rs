//! A relay's thread, and the queue into it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::event_loop::{Loop, News, Queue};
use super::poll::Poll;
use super::scheduling::{RelayPriority, SchedulingClass, claim};
use crate::datapath::Flow;
use crate::datapath::kernel::Kernel;
use crate::telemetry::Metrics;

/// A relay's part in the kernel path.
#[derive(Clone, Debug)]
pub struct KernelRelay {
    /// The loaded programs.
    pub kernel: Kernel,
    /// The relay's number, below `RELAYS_MAX`, and no other relay's.
    pub relay: u32,
}

/// The relay's limits.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Flows that may wait in its queue.
    pub queue_max: usize,
    /// Silence of the engine after which a response is cut.
    pub stream_idle: Duration,
    /// Time for which a client may take nothing while bytes wait for it.
    pub client_write: Duration,
    /// Its place among the threads of its core.
    pub priority: RelayPriority,
}

/// A running relay; dropping the handle and all its clones leaves the thread running until `stop`.
#[derive(Debug)]
pub struct Relay {
    handle: RelayHandle,
    thread: JoinHandle<()>,
    class: SchedulingClass,
}

impl Relay {
    /// Starts a relay's thread.
    ///
    /// # Errors
    /// What eventfd, epoll or the thread's creation answer.
    pub fn start(
        name: &str,
        config: RelayConfig,
        kernel: Option<KernelRelay>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Relay> {
        let (sender, receiver) = sync_channel(config.queue_max.max(1));
        let wake = Arc::new(event_fd()?);
        let stop = Arc::new(AtomicBool::new(false));
        let poll = Poll::new()?;
        let queue = Queue::new(receiver, Arc::clone(&wake), Arc::clone(&stop), &poll)?;
        let news = kernel.map(|kernel| News::new(kernel, &poll)).transpose()?;
        // A real-time thread would starve the kernel's own worker, through which redirected bytes go.
        let priority = if news.is_some() {
            RelayPriority::Normal
        } else {
            config.priority
        };
        let handle = RelayHandle { sender, wake, stop };
        let mut event_loop = Loop::new(poll, queue, news, config, Arc::clone(&metrics));
        let (granted, grant) = sync_channel(1);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let class = claim(priority);
            // Whoever started the relay waits for it.
            let _ = granted.send(class);
            metrics.relay_scheduled(class.as_str());
            event_loop.run(class);
            metrics.relay_ended(class.as_str());
        })?;
        let class = grant.recv().map_err(io::Error::other)?;
        Ok(Relay {
            handle,
            thread,
            class,
        })
    }

    /// What workers hand flows over with.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    /// How the host lets it run.
    #[must_use]
    pub fn class(&self) -> SchedulingClass {
        self.class
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
