//! Listening sockets, one a worker on the same address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that wait in the kernel for a worker to accept them.
const BACKLOG: i32 = 4096;

/// Binds `count` listeners that share `addr`.
///
/// The first bind goes without SO_REUSEPORT, so that a port in use by another process is an error and not a
/// silent share of its traffic.
///
/// # Errors
/// What socket, bind and listen answer; AddrInUse where the port is taken.
pub fn bind_listeners(addr: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let probe = socket(addr)?;
    probe.bind(&addr.into())?;
    let addr = probe.local_addr()?.as_socket().unwrap_or(addr);
    drop(probe);
    (0..count.max(1))
        .map(|_| {
            let socket = socket(addr)?;
            socket.set_reuse_port(true)?;
            socket.bind(&addr.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

fn socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// A listener on a worker's ring.
pub struct Listener {
    ring: tokio_uring::net::TcpListener,
    addr: SocketAddr,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Listener({})", self.addr)
    }
}

impl Listener {
    /// Puts a bound listener on this thread's ring.
    ///
    /// # Errors
    /// What getsockname answers.
    pub fn new(listener: TcpListener) -> io::Result<Listener> {
        let addr = listener.local_addr()?;
        Ok(Listener {
            ring: tokio_uring::net::TcpListener::from_std(listener),
            addr,
        })
    }

    /// The next connection, with its peer's address.
    ///
    /// # Errors
    /// What accept answers; EINVAL after [`Listener::stop`].
    pub async fn accept(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        let (stream, peer) = self.ring.accept().await?;
        // The ring's own handle closes its descriptor when dropped; the connection lives on in the duplicate.
        // SAFETY: `stream` is alive, so its descriptor is open.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(stream.as_raw_fd()) }.try_clone_to_owned()?;
        SockRef::from(&fd).set_tcp_nodelay(true)?;
        Ok((fd, peer))
    }

    /// Takes the connections that wait already, then refuses new ones; the pending accept ends with an error.
    pub fn stop(&self) -> Vec<(OwnedFd, SocketAddr)> {
        let mut waiting = Vec::new();
        while waiting.len() < BACKLOG as usize {
            // SAFETY: a null address is allowed, and the descriptor is open.
            let fd = unsafe {
                let _ = libc::fcntl(self.ring.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
                libc::accept4(
                    self.ring.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            };
            if fd < 0 {
                break;
            }
            // SAFETY: accept4 has just given this descriptor to us.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let peer = SockRef::from(&fd)
                .peer_addr()
                .ok()
                .and_then(|peer| peer.as_socket());
            waiting.push((fd, peer.unwrap_or(self.addr)));
        }
        // SAFETY: `ring` is alive, so its descriptor is open.
        let listener = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        super::shutdown(&listener.as_fd(), std::net::Shutdown::Both);
        waiting
    }
}
