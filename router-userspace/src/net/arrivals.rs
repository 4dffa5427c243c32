//! Reading from a connection with time limits that leave it whole.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Conn;

/// Bytes that one read takes at most.
const READ_BYTES: usize = 4096;

#[derive(Debug)]
struct Registered(RawFd);

impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// A standing registration for what arrives on a connection.
///
/// It reads only what is there, so its future may be dropped at any time and the connection still used; a ring read
/// could only be ended by shutting the connection down.
#[derive(Debug)]
pub struct Arrivals {
    watched: AsyncFd<Registered>,
}

impl Arrivals {
    /// Watches `conn`, which must stay open as long as the value lives.
    ///
    /// # Errors
    /// What `epoll_ctl` answers, such as ENOSPC at the limit of watches.
    pub fn watch(conn: &Conn) -> io::Result<Arrivals> {
        // SAFETY: the caller keeps the descriptor open as long as this value lives.
        let watched =
            unsafe { AsyncFd::register_with_interest(Registered(conn.raw_fd()), Interest::READABLE) };
        Ok(Arrivals { watched: watched? })
    }

    /// Appends what arrives to `conn.read_ahead`, at most 4 KiB; 0 = the peer has finished sending.
    ///
    /// # Errors
    /// What recv answers.
    pub async fn read(&self, conn: &mut Conn) -> io::Result<usize> {
        let mut buffer = [0; READ_BYTES];
        let mut receive = |fd: &AsyncFd<Registered>| {
            // SAFETY: the pointer and the length come from one array that outlives the call.
            let received = unsafe {
                libc::recv(
                    fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            usize::try_from(received).map_err(|_| io::Error::last_os_error())
        };
        let count = loop {
            let mut guard = self.watched.readable().await?;
            if let Ok(result) = guard.try_io(&mut receive) {
                break result?;
            }
        };
        conn.read_ahead.extend_from_slice(&buffer[..count]);
        conn.bytes_read += count as u64;
        Ok(count)
    }
}
