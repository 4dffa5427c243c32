//! What is read of a connection before its backend is chosen.

use std::net::SocketAddr;

use bytes::Buf;
use tokio::time::{Instant, timeout_at};

use super::TcpHash;
use super::counts::{End, Route};
use super::service::{TcpService, name_key, source_key};
use crate::net::{Arrivals, Conn, local_addr};
use crate::proto::proxy_protocol::{self, Addresses};
use crate::proto::tls_hello::{Hello, HelloReader};

/// What is known of a connection that may go to a backend.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) addresses: Addresses,
    pub(super) key: u64,
    pub(super) route: Route,
}

/// Reads what `service` needs; the client's own bytes stay in `conn.read_ahead`.
pub(super) async fn open(conn: &mut Conn, service: &TcpService, peer: SocketAddr) -> Result<Opened, End> {
    let local = local_addr(conn).map_err(|_| End::Client)?;
    let mut addresses = Addresses {
        source: peer,
        destination: local,
    };
    let trusted = trusts(service, peer);
    let sni = service.config.hash == TcpHash::Sni;
    let mut name = None;
    let mut route = Route::Source;
    if trusted || sni {
        let arrivals = Arrivals::watch(conn).map_err(|_| End::Overloaded)?;
        let deadline = Instant::now() + service.config.hello;
        if trusted {
            addresses = proxy_header(conn, &arrivals, deadline)
                .await?
                .unwrap_or(addresses);
        }
        if sni {
            (route, name) = hello(conn, &arrivals, deadline).await?;
        }
    }
    let key = name.map_or_else(|| source_key(addresses.source.ip()), |name| name_key(&name));
    Ok(Opened {
        addresses,
        key,
        route,
    })
}

fn trusts(service: &TcpService, peer: SocketAddr) -> bool {
    let ranges = &service.config.trusted_proxies;
    ranges.iter().any(|range| range.contains(peer.ip()))
}

/// Takes the PROXY header off the connection. Whoever is trusted to send one has to: to guess would let a client
/// behind it speak for others.
async fn proxy_header(
    conn: &mut Conn,
    arrivals: &Arrivals,
    deadline: Instant,
) -> Result<proxy_protocol::Header, End> {
    loop {
        match proxy_protocol::parse(&conn.read_ahead) {
            Ok(Some((header, length))) => {
                conn.read_ahead.advance(length);
                return Ok(header);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!("a trusted proxy's connection is refused: {error}");
                return Err(End::ProxyHeader);
            }
        }
        match timeout_at(deadline, arrivals.read(conn)).await {
            // A proxy that only looks whether the port is open.
            Ok(Ok(0)) if conn.read_ahead.is_empty() => return Err(End::Client),
            Ok(Ok(0)) | Err(_) => return Err(End::ProxyHeader),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(End::Client),
        }
    }
}

/// Reads the client's hello, as far as it takes to know its name or that there's none.
async fn hello(
    conn: &mut Conn,
    arrivals: &Arrivals,
    deadline: Instant,
) -> Result<(Route, Option<String>), End> {
    let mut reader = HelloReader::new();
    let mut seen = 0;
    loop {
        let found = reader.push(&conn.read_ahead[seen..]);
        seen = conn.read_ahead.len();
        match found {
            Hello::More => {}
            Hello::Name(name) => return Ok((Route::Sni, Some(name))),
            Hello::NoName => return Ok((Route::NoName, None)),
            Hello::NotTls => return Ok((Route::NotTls, None)),
            Hello::TooLong => return Ok((Route::HelloTooLong, None)),
        }
        match timeout_at(deadline, arrivals.read(conn)).await {
            // A protocol in which the server speaks first, or a client that only listens.
            Ok(Ok(0)) | Err(_) => return Ok((Route::HelloLate, None)),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(End::Client),
        }
    }
}
