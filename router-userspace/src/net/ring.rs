//! Reading and writing through a worker's io_uring.
//!
//! Dropping a future doesn't cancel an io_uring operation. So a deadline shuts the socket down and then awaits
//! the operation, and a stream that is dropped with an operation under way shuts its socket down first, lest the
//! operation hold the descriptor for ever.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::net::TcpSocket;
use tokio::time::Instant;
use tokio_uring::buf::BoundedBuf;

use super::{Conn, acked_bytes, send_now, send_parts_now, shutdown};

/// Submission entries of a worker's ring; the completion ring is twice as long, and the kernel keeps what
/// doesn't fit.
const RING_ENTRIES: u32 = 1024;

/// Why an operation didn't do what it should.
#[derive(Debug, thiserror::Error)]
pub enum IoFailure {
    /// Its time was up; the direction it used has been shut down.
    #[error("timed out")]
    TimedOut,
    /// The connection is broken.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// Why a worker's ring can't be had.
#[derive(Debug, thiserror::Error)]
#[error("io_uring refused by this host: {cause}; {remedy}")]
pub struct RingError {
    cause: io::Error,
    remedy: &'static str,
}

impl RingError {
    fn new(cause: io::Error) -> RingError {
        let remedy = match cause.raw_os_error() {
            Some(libc::ENOSYS) => "Linux 5.11 or newer with CONFIG_IO_URING is needed",
            Some(libc::ENOMEM) => "raise the memlock limit (systemd: LimitMEMLOCK=infinity)",
            _ => {
                "set the sysctl kernel.io_uring_disabled to 0, or in a container allow io_uring_setup, \
                 io_uring_enter and io_uring_register in its seccomp profile"
            }
        };
        RingError { cause, remedy }
    }
}

/// Runs `future` on a new ring on this thread until it's done.
///
/// # Errors
/// [`RingError`] where the host refuses io_uring.
pub fn run_ring<F: Future>(future: F) -> Result<F::Output, RingError> {
    // tokio-uring panics where the kernel refuses a ring, so ask once beforehand.
    probe().map_err(RingError::new)?;
    let mut builder = tokio_uring::builder();
    builder.entries(RING_ENTRIES);
    Ok(builder.start(future))
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn probe() -> io::Result<()> {
    // struct io_uring_params is 120 bytes, all zero = no flags (include/uapi/linux/io_uring.h).
    let mut params = [0u64; 15];
    // SAFETY: `params` is as large as the kernel's struct and lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just given this descriptor to us.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Opens a connection.
///
/// It goes by the runtime's readiness and not by the ring, since a connect must be given up at its deadline.
///
/// # Errors
/// [`IoFailure::TimedOut`] after `timeout`, else what connect answers.
pub async fn connect(addr: SocketAddr, timeout: Duration) -> Result<Conn, IoFailure> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    super::tune_upstream(&socket)?;
    let stream = match tokio::time::timeout(timeout, socket.connect(addr)).await {
        Err(_) => return Err(IoFailure::TimedOut),
        Ok(result) => result?,
    };
    let stream = stream.into_std()?;
    // A ring operation on a nonblocking socket fails with EAGAIN instead of waiting.
    stream.set_nonblocking(false)?;
    Ok(Conn::new(stream.into()))
}

/// A worker's handle on a connection.
pub struct RingStream {
    ring: tokio_uring::net::TcpStream,
    pending: Cell<u32>,
    gave_up: Cell<bool>,
}

impl std::fmt::Debug for RingStream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "RingStream(fd {}, {} pending)",
            self.ring.as_raw_fd(),
            self.pending.get()
        )
    }
}

impl AsFd for RingStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `ring` holds the descriptor open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for RingStream {
    fn drop(&mut self) {
        if self.pending.get() > 0 {
            shutdown(self, Shutdown::Both);
        }
    }
}

/// Counts an operation for as long as it's under way.
struct Pending<'a>(&'a Cell<u32>);

impl<'a> Pending<'a> {
    fn new(count: &'a Cell<u32>) -> Pending<'a> {
        count.set(count.get() + 1);
        Pending(count)
    }

    fn done(self) {
        self.0.set(self.0.get() - 1);
    }
}

impl RingStream {
    /// A handle over a duplicate of `conn`'s descriptor.
    ///
    /// # Errors
    /// EMFILE at the limit of open files.
    pub fn new(conn: &Conn) -> io::Result<RingStream> {
        let duplicate = conn.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is a TCP socket that we own and give up here.
        let stream = unsafe { std::net::TcpStream::from_raw_fd(duplicate.into_raw_fd()) };
        Ok(RingStream {
            ring: tokio_uring::net::TcpStream::from_std(stream),
            pending: Cell::new(0),
            gave_up: Cell::new(false),
        })
    }

    /// Whether a read has ended at its deadline: then a [`super::Departure`] sees the shutdown of this side and not
    /// the peer's.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Appends what arrives to `conn.read_ahead`, at most `room` bytes; 0 = the peer has finished sending.
    ///
    /// At the deadline the reading direction is shut down, so the connection can't be read again.
    ///
    /// # Errors
    /// [`IoFailure::TimedOut`] at `deadline`, else what recv answers.
    pub async fn read(
        &self,
        conn: &mut Conn,
        room: usize,
        deadline: Option<Instant>,
    ) -> Result<usize, IoFailure> {
        let mut buffer = std::mem::take(&mut conn.read_ahead);
        buffer.reserve(room);
        let (result, buffer) = self.read_buffer(buffer, room, deadline).await;
        conn.read_ahead = buffer;
        let count = result?;
        conn.bytes_read += count as u64;
        Ok(count)
    }

    async fn read_buffer(
        &self,
        buffer: BytesMut,
        room: usize,
        deadline: Option<Instant>,
    ) -> (Result<usize, IoFailure>, BytesMut) {
        let filled = buffer.len();
        let end = (filled + room).min(buffer.capacity());
        let pending = Pending::new(&self.pending);
        let mut operation = pin!(self.ring.read(buffer.slice(filled..end)));
        let (result, timed_out) = match deadline {
            None => (operation.await, false),
            Some(deadline) => tokio::select! {
                biased;
                result = &mut operation => (result, false),
                () = tokio::time::sleep_until(deadline) => {
                    self.gave_up.set(true);
                    shutdown(self, Shutdown::Read);
                    (operation.await, true)
                }
            },
        };
        pending.done();
        let (outcome, slice) = result;
        let outcome = match outcome {
            // Bytes that came at the last moment still count.
            Ok(0) | Err(_) if timed_out => Err(IoFailure::TimedOut),
            Ok(count) => Ok(count),
            Err(error) => Err(IoFailure::Broken(error)),
        };
        (outcome, slice.into_inner())
    }

    /// Writes all parts, one after another; together in one call where the socket takes them.
    ///
    /// # Errors
    /// As [`RingStream::write_all`].
    pub async fn write_parts<const N: usize>(
        &self,
        parts: [Bytes; N],
        timeout: Duration,
    ) -> Result<(), IoFailure> {
        let slices: [&[u8]; N] = std::array::from_fn(|index| &parts[index][..]);
        let mut sent = match send_parts_now(self, &slices) {
            Ok(count) => count,
            Err(error) if is_not_now(&error) => 0,
            Err(error) => return Err(IoFailure::Broken(error)),
        };
        for mut part in parts {
            let count = sent.min(part.len());
            sent -= count;
            part.advance(count);
            self.write_all(part, timeout).await?;
        }
        Ok(())
    }

    /// Writes all of `bytes`; the deadline starts anew whenever the socket takes some.
    ///
    /// # Errors
    /// [`IoFailure::TimedOut`] where the peer takes nothing for `timeout` (both directions are shut down then),
    /// else what send answers.
    pub async fn write_all<B: BoundedBuf>(&self, bytes: B, timeout: Duration) -> Result<(), IoFailure> {
        let mut rest = bytes.slice_full();
        if rest.bytes_init() == 0 {
            return Ok(());
        }
        // Most sockets take all at once. Through the ring that costs a turn of the runtime more, since its
        // completion is heard of only by the next wait.
        match send_now(self.ring.as_raw_fd(), &rest) {
            Ok(count) if count == rest.bytes_init() => return Ok(()),
            Ok(count) => rest = rest.slice(count..),
            Err(error) if is_not_now(&error) => {}
            Err(error) => return Err(IoFailure::Broken(error)),
        }
        while rest.bytes_init() > 0 {
            let pending = Pending::new(&self.pending);
            let mut operation = pin!(self.ring.write(rest).submit());
            let mut acked = acked_bytes(self).unwrap_or(0);
            let (result, timed_out) = loop {
                tokio::select! {
                    biased;
                    result = &mut operation => break (result, false),
                    () = tokio::time::sleep(timeout) => {}
                }
                // A full socket takes nothing more for as long as a slow peer reads what is in it.
                let before = std::mem::replace(&mut acked, acked_bytes(self).unwrap_or(0));
                if acked <= before {
                    shutdown(self, Shutdown::Both);
                    break (operation.await, true);
                }
            };
            pending.done();
            let (outcome, slice) = result;
            match outcome {
                _ if timed_out => return Err(IoFailure::TimedOut),
                Ok(0) => return Err(IoFailure::Broken(io::ErrorKind::WriteZero.into())),
                Ok(count) => rest = slice.slice(count..),
                Err(error) => return Err(IoFailure::Broken(error)),
            }
        }
        Ok(())
    }
}
