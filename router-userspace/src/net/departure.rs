//! Notices that a peer has left without reading from its connection.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
struct Registered(RawFd);

impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// A standing registration that becomes ready when the peer closes or resets its side.
///
/// It reads nothing, so a pipelined request stays in the socket, and it can be dropped at any time: a pending
/// ring read could not be cancelled and would eat the next request.
#[derive(Debug)]
pub struct Departure {
    watched: AsyncFd<Registered>,
}

impl Departure {
    /// Watches `fd`, which must stay open as long as the value lives.
    ///
    /// # Errors
    /// What `epoll_ctl` answers, such as ENOSPC at the limit of watches.
    pub fn watch(fd: BorrowedFd<'_>) -> io::Result<Departure> {
        // SAFETY: the caller keeps the descriptor open as long as this value lives.
        let watched =
            unsafe { AsyncFd::register_with_interest(Registered(fd.as_raw_fd()), Interest::READABLE) };
        Ok(Departure { watched: watched? })
    }

    /// Waits until the peer has closed its writing side or the connection is broken.
    pub async fn wait(&self) {
        loop {
            let Ok(mut guard) = self.watched.readable().await else {
                return;
            };
            if guard.ready().is_read_closed() {
                return;
            }
            guard.clear_ready();
        }
    }
}
