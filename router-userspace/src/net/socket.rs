//! Options and small system calls on sockets.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Time after which unacknowledged bytes break an upstream connection: a host that is down without a word.
const UPSTREAM_USER_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle time before the first keep-alive probe to an engine.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(4);
/// Probes without an answer that break the connection: 5 + 3 x 4 s, within 20 s of a silent death.
const KEEPALIVE_PROBES: u32 = 3;

/// Sets what an upstream connection needs: no Nagle, and to notice a dead host while it waits.
///
/// # Errors
/// What setsockopt answers.
pub fn tune_upstream(fd: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UPSTREAM_USER_TIMEOUT))?;
    socket.set_tcp_keepalive(&keepalive())
}

/// Sets what either end of a tunnel needs: no Nagle, and to notice a dead host, but to bear a live one that takes
/// nothing for long: TCP_USER_TIMEOUT would also end a connection whose peer keeps its window closed.
///
/// # Errors
/// What setsockopt answers.
///
/// # Source
/// Linux net/ipv4/tcp_timer.c, `tcp_probe_timer`.
pub fn tune_tunnel(fd: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(fd);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(None)?;
    socket.set_tcp_keepalive(&keepalive())
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES)
}

/// The address at which a connection's peer reached this host.
///
/// # Errors
/// What getsockname answers.
pub fn local_addr(fd: &impl AsFd) -> io::Result<SocketAddr> {
    let addr = SockRef::from(fd).local_addr()?;
    addr.as_socket()
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Shuts a direction down; an error means that the connection is gone already.
pub fn shutdown(fd: &impl AsFd, how: Shutdown) {
    let _ = SockRef::from(fd).shutdown(how);
}

/// Makes the close that follows a reset, so that the peer can't take a cut body for a whole one.
pub fn reset_on_close(fd: &impl AsFd) {
    let _ = SockRef::from(fd).set_linger(Some(Duration::ZERO));
}

/// Takes [`reset_on_close`] back.
pub fn fin_on_close(fd: &impl AsFd) {
    let _ = SockRef::from(fd).set_linger(None);
}

/// What an idle connection has to say for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing: it can be used.
    Quiet,
    /// It was closed, broken, or sent bytes that nobody asked for.
    Condemned,
}

/// Looks at an idle connection without reading from it.
#[must_use]
pub fn peek_idle(fd: &impl AsFd) -> Idle {
    let mut byte = [MaybeUninit::uninit(); 1];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    match SockRef::from(fd).recv_with_flags(&mut byte, flags) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Idle::Quiet,
        _ => Idle::Condemned,
    }
}

/// Sends what the socket takes at once, without waiting and without SIGPIPE.
///
/// # Errors
/// WouldBlock where it takes nothing now; else the connection is broken.
pub fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length come from one slice that outlives the call.
    let sent = unsafe {
        libc::send(
            fd,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Like [`send_now`] for parts that lie apart.
///
/// # Errors
/// As [`send_now`].
pub fn send_parts_now(fd: &impl AsFd, parts: &[&[u8]]) -> io::Result<usize> {
    let slices: Vec<io::IoSlice<'_>> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
    SockRef::from(fd).send_vectored_with_flags(&slices, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Bytes that the peer's kernel has acknowledged in the connection's life (`tcpi_bytes_acked`).
///
/// # Errors
/// What getsockopt answers.
///
/// # Source
/// Linux include/uapi/linux/tcp.h, `struct tcp_info`.
pub fn acked_bytes(fd: &impl AsFd) -> io::Result<u64> {
    let mut length = libc::socklen_t::try_from(TCP_INFO_BYTES_ACKED_END).unwrap_or(0);
    let mut raw = [0u8; TCP_INFO_BYTES_ACKED_END];
    // SAFETY: `raw` is `length` bytes long, and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let start = TCP_INFO_BYTES_ACKED_END - 8;
    let mut field = [0u8; 8];
    field.copy_from_slice(&raw[start..]);
    Ok(u64::from_ne_bytes(field))
}

/// End of `tcpi_bytes_acked` in `struct tcp_info`: 8 bytes of flags, 24 u32, two u64 of pacing, then it.
const TCP_INFO_BYTES_ACKED_END: usize = 8 + 24 * 4 + 2 * 8 + 8;

/// Raises the soft limit of open files to the hard one.
///
/// # Errors
/// What setrlimit answers.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnels_end_bears_a_closed_window_where_an_upstream_would_not() {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        tune_upstream(&socket).expect("takes its options");
        let limit = socket.tcp_user_timeout().expect("is told");
        assert_eq!(limit, Some(UPSTREAM_USER_TIMEOUT));
        tune_tunnel(&socket).expect("takes its options");
        let limit = socket.tcp_user_timeout().expect("is told").unwrap_or_default();
        assert_eq!(limit, Duration::ZERO);
        assert!(
            socket.keepalive().expect("is told"),
            "a dead host is still noticed"
        );
    }
}
