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
        let handle = RelayHandle { sender, wake, stop };
        let mut event_loop = Loop::new(poll, queue, news, config, metrics);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || event_loop.run())?;
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
