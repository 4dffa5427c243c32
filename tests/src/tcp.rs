//! L4 listeners: a router with `[[tcp]]` sections, and backends that speak no HTTP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;

use socket2::{Domain, Socket, Type};

use crate::gate::wait_until;
use crate::options::RouterOptions;
use crate::router::{Datapath, Router};
use crate::wire::Wire;

/// A listening backend whose connections the test takes itself.
#[derive(Debug)]
pub struct TcpBackend {
    listener: TcpListener,
}

impl TcpBackend {
    /// On a free port of 127.0.0.1.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn start() -> TcpBackend {
        TcpBackend::at(Ipv4Addr::LOCALHOST.into(), None)
    }

    /// On a free port of `ip`, its connections with a receive buffer of about `receive_buffer` bytes.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn at(ip: IpAddr, receive_buffer: Option<usize>) -> TcpBackend {
        let address = SocketAddr::new(ip, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        if let Some(bytes) = receive_buffer {
            // Accepted connections inherit it.
            socket.set_recv_buffer_size(bytes).expect("a buffer size");
        }
        socket.bind(&address.into()).expect("a port");
        socket.listen(128).expect("listens");
        socket.set_nonblocking(true).expect("takes its options");
        TcpBackend {
            listener: socket.into(),
        }
    }

    /// Its address.
    ///
    /// # Panics
    /// Where the system doesn't tell.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// Takes a connection that waits already.
    ///
    /// # Panics
    /// Where accept fails otherwise than for want of one.
    #[must_use]
    pub fn try_accept(&self) -> Option<Wire> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("takes its options");
                Some(Wire::new(stream).expect("takes its options"))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("accept: {error}"),
        }
    }

    /// Waits for a connection.
    ///
    /// # Panics
    /// Where none comes.
    #[must_use]
    #[track_caller]
    pub fn accept(&self) -> Wire {
        accept_any(&[self]).1
    }
}

/// Waits for a connection to one of `backends`; says to which.
///
/// # Panics
/// Where none comes.
#[must_use]
#[track_caller]
pub fn accept_any(backends: &[&TcpBackend]) -> (usize, Wire) {
    let mut taken = None;
    wait_until("a connection comes", || {
        let mut each = backends.iter().enumerate();
        taken = each.find_map(|(index, backend)| Some((index, backend.try_accept()?)));
        taken.is_some()
    });
    taken.expect("was just there")
}

/// A router with L4 listeners, and an HTTP backend that nobody asks.
#[derive(Debug)]
pub struct TcpRouter {
    router: Router,
}

impl TcpRouter {
    /// Starts a router by this configuration. Health is off where the text has no `[health]`.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    #[track_caller]
    pub fn start(datapath: Datapath, text: &str) -> TcpRouter {
        TcpRouter::with(RouterOptions::new(datapath, &[]).backend("127.0.0.1:9"), text)
    }

    /// The same without any HTTP backend, and so without an HTTP listener.
    ///
    /// # Panics
    /// Where it doesn't start.
    #[must_use]
    #[track_caller]
    pub fn start_alone(text: &str) -> TcpRouter {
        let options = RouterOptions::new(Datapath::Copy, &[]);
        TcpRouter::with(options.ready("listening on "), text)
    }

    #[track_caller]
    fn with(options: RouterOptions, text: &str) -> TcpRouter {
        let health = if text.contains("[health]") {
            ""
        } else {
            "\n[health]\nenabled = false\n"
        };
        let options = options.config(&[text, health].concat());
        TcpRouter {
            router: options.arguments(&["--workers", "2"]).start(),
        }
    }

    /// Where the listener with this name is.
    ///
    /// # Panics
    /// Where there's none.
    #[must_use]
    #[track_caller]
    pub fn listener(&self, name: &str) -> SocketAddr {
        let log = self.router.log();
        let marker = format!("tcp {name} listening on ");
        let line = log.lines().find_map(|line| line.split_once(&marker));
        let (_, address) = line.unwrap_or_else(|| panic!("no {marker:?} in\n{log}"));
        address.trim().parse().expect("an address")
    }

    /// Connects to the listener with this name.
    ///
    /// # Panics
    /// Where it can't.
    #[must_use]
    #[track_caller]
    pub fn connect(&self, name: &str) -> Wire {
        let address = self.listener(name);
        let own = if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        connect_from(own, address)
    }

    /// Waits until no connection is charged and no flow is carried.
    ///
    /// # Panics
    /// Where something stays.
    #[track_caller]
    pub fn assert_no_connections(&self) {
        for name in ["warmpath_tcp_connections", "warmpath_connections"] {
            wait_until(&format!("{name} is 0"), || self.router.metric(name) == 0.0);
        }
        self.router.assert_idle();
    }

    /// Waits until the sum of a metric's samples with `label` is `value`.
    ///
    /// # Panics
    /// Where it isn't in time.
    #[track_caller]
    pub fn await_metric(&self, name: &str, label: &str, value: f64) {
        wait_until(&format!("{name}{{{label}}} is {value}"), || {
            self.router.metrics().sum(name, label) == Some(value)
        });
    }
}

impl Deref for TcpRouter {
    type Target = Router;

    fn deref(&self) -> &Router {
        &self.router
    }
}

/// Connects to `address` from the address `own` of this host.
///
/// # Panics
/// Where it can't.
#[must_use]
#[track_caller]
pub fn connect_from(own: IpAddr, address: SocketAddr) -> Wire {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(own, 0).into())
        .expect("an address of this host");
    socket.connect(&address.into()).expect("connects");
    Wire::new(socket.into()).expect("takes its options")
}
