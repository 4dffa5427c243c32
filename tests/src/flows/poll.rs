//! epoll, and the scheduling of the ends.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context as _, Result};

/// Events taken at once.
const EVENTS_MAX: usize = 256;
/// Real-time priority of the ends where it's asked for: above the relay's, which is 1.
const FIFO_PRIORITY: i32 = 2;

pub(super) const IN: u32 = libc::EPOLLIN as u32;
pub(super) const OUT: u32 = libc::EPOLLOUT as u32;

/// An epoll instance with room for its answers.
pub(super) struct Poll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    pub(super) fn new() -> Result<Poll> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("epoll");
        }
        Ok(Poll {
            // SAFETY: the kernel has just given this descriptor to us.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX],
        })
    }

    fn control(&self, operation: i32, fd: RawFd, token: usize, events: u32) -> Result<()> {
        let mut event = libc::epoll_event {
            events,
            u64: token as u64,
        };
        // SAFETY: `event` lives through the call.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) };
        if result != 0 {
            return Err(io::Error::last_os_error()).context("epoll_ctl");
        }
        Ok(())
    }

    pub(super) fn add(&self, fd: RawFd, token: usize, events: u32) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, events)
    }

    pub(super) fn modify(&self, fd: RawFd, token: usize, events: u32) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    /// What is ready within `timeout_ns`, as tokens and events.
    pub(super) fn wait(&mut self, timeout_ns: u64) -> Result<impl Iterator<Item = (usize, u32)> + '_> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (timeout_ns % 1_000_000_000).cast_signed(),
        };
        let no_signals: *const libc::sigset_t = std::ptr::null();
        // SAFETY: the pointer and the length come from one vector, and `timeout` lives through the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len(),
                &raw const timeout,
                no_signals,
                0,
            )
        };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => return Err(io::Error::last_os_error()).context("epoll_pwait2"),
        };
        Ok(self.events[..count]
            .iter()
            .map(|event| (event.u64 as usize, event.events)))
    }
}

/// Timers of this thread to the microsecond; and, where `fifo`, the thread before all ordinary ones.
///
/// # Errors
/// Where real-time scheduling is asked for and not allowed.
pub(super) fn schedule(fifo: bool) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if fifo {
        let parameter = libc::sched_param {
            sched_priority: FIFO_PRIORITY,
        };
        // SAFETY: `parameter` lives through the call; 0 is the calling thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } != 0 {
            return Err(io::Error::last_os_error()).context("SCHED_FIFO");
        }
    }
    Ok(())
}

/// Receives without waiting; `None` = nothing there yet.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the pointer and the length come from one slice.
    let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    moved(count)
}

/// Sends without waiting; `None` = the socket takes nothing now.
pub(super) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<Option<usize>> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length come from one slice.
    let count = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    moved(count)
}

fn moved(count: isize) -> io::Result<Option<usize>> {
    match usize::try_from(count) {
        Ok(count) => Ok(Some(count)),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}
