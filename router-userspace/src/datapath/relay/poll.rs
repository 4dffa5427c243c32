//! epoll, as the relay uses it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What epoll watches a socket for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Not registered at all.
    Off,
    /// These events, besides HUP and ERR, which are always reported.
    On(u32),
}

impl Interest {
    pub(super) fn events(self) -> u32 {
        match self {
            Interest::Off => 0,
            Interest::On(events) => events,
        }
    }
}

/// An epoll instance.
pub(super) struct Poll {
    fd: OwnedFd,
}

impl Poll {
    pub(super) fn new() -> io::Result<Poll> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Poll { fd })
    }

    fn control(&self, operation: i32, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn add(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, events)
    }

    /// Waits for events, at most `timeout`, to the microsecond where the host allows it.
    pub(super) fn wait(&self, events: &mut [libc::epoll_event], timeout: Duration) -> usize {
        match self.wait_fine(events, timeout) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            // Linux before 5.11, or a seccomp profile older than that.
            Err(_) => self.wait_coarse(events, timeout),
        }
    }

    fn wait_coarse(&self, events: &mut [libc::epoll_event], timeout: Duration) -> usize {
        // Rounded up, lest the caller spin through the last millisecond.
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let capacity = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: the pointer and the length come from one slice.
        let count =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), capacity, timeout_ms) };
        usize::try_from(count).unwrap_or(0)
    }

    fn wait_fine(&self, events: &mut [libc::epoll_event], timeout: Duration) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        let no_signals: *const libc::sigset_t = std::ptr::null();
        // SAFETY: the pointer and the length come from one slice, and `timeout` lives through the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                events.len(),
                &raw const timeout,
                no_signals,
                0,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Tells epoll what is wanted of a socket, where that has changed.
    pub(super) fn tell(
        &self,
        fd: RawFd,
        token: u64,
        told: &mut Interest,
        wanted: Interest,
    ) -> io::Result<()> {
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
