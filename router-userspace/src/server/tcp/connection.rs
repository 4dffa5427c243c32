//! One connection: opened, connected, carried.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ProxyHeader;
use super::counts::End;
use super::opening::{Opened, open};
use super::service::TcpService;
use crate::backend::Charge;
use crate::datapath::{Flow, FlowKind, Outcome, TunnelTerms};
use crate::net::{self, Conn};
use crate::proto::proxy_protocol::{write_v1, write_v2};
use crate::server::worker::Worker;
use crate::types::now;

/// Between two tries to hand a connection to a relay whose queue is full.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(1);

/// Takes a connection in, or resets it where there's no room.
pub(in crate::server) fn admit(
    worker: &Rc<Worker>,
    service: &Arc<TcpService>,
    fd: OwnedFd,
    peer: SocketAddr,
) {
    let Some(seat) = worker.seat() else {
        worker.shared.metrics.connections_refused_total.inc();
        net::reset_on_close(&fd);
        return;
    };
    let (worker, service) = (Rc::clone(worker), Arc::clone(service));
    // Detached: the task ends with its connection.
    drop(tokio::task::spawn_local(async move {
        let end = serve(&worker, &service, Conn::new(fd), peer).await;
        service.counts.end(end);
        drop(seat);
    }));
}

async fn serve(worker: &Worker, service: &TcpService, mut client: Conn, peer: SocketAddr) -> End {
    // An error means that the client has left already, which the first read tells.
    let _ = net::tune_tunnel(&client);
    let opened = match open(&mut client, service, peer).await {
        Ok(opened) => opened,
        Err(end) => return refuse(&client, end),
    };
    service.counts.route(opened.route);
    let (upstream, charge) = match connect(worker, service, opened.key).await {
        Ok(connected) => connected,
        Err(end) => return refuse(&client, end),
    };
    carry(worker, service, client, upstream, &charge, &opened).await
}

/// Nobody is there to take the client's bytes: a FIN would say that someone was.
fn refuse(client: &Conn, end: End) -> End {
    net::reset_on_close(client);
    end
}

/// Connects to the key's backend, or to the next where that fails.
async fn connect(worker: &Worker, service: &TcpService, key: u64) -> Result<(Conn, Charge), End> {
    let config = &worker.shared.config;
    let mut tried = Vec::new();
    while (tried.len() as u32) < config.retry.tries_max {
        let Some(index) = service.choose(key, &tried) else {
            break;
        };
        let backend = &service.backends().backends[index];
        let charge = backend.charge();
        match net::connect(backend.config.addr, config.timeouts.connect).await {
            Ok(upstream) => {
                // Fails only where the connection is broken already.
                let _ = net::tune_tunnel(&upstream);
                return Ok((upstream, charge));
            }
            Err(error) => {
                tracing::debug!(backend = %backend.config.name, "no connection: {error}");
                let failures = &backend.stats.connect_failures_total;
                failures.fetch_add(1, Ordering::Relaxed);
                tried.push(index);
            }
        }
    }
    Err(if tried.is_empty() {
        End::NoBackend
    } else {
        End::Unreachable
    })
}

/// Gives both connections to the relay and waits for their end.
async fn carry(
    worker: &Worker,
    service: &TcpService,
    mut client: Conn,
    upstream: Conn,
    charge: &Charge,
    opened: &Opened,
) -> End {
    let backend = charge.backend();
    let sent = Arc::clone(&service.sent[backend.id.0 as usize]);
    if !client.read_ahead.is_empty() {
        sent.note(client.read_ahead.len() as u64, now());
    }
    put_header(service.config.proxy_header, opened, &mut client);
    let (done, end) = oneshot::channel();
    let flow = Flow {
        upstream_slot: None,
        client_slot: None,
        client,
        upstream,
        kind: FlowKind::Tunnel,
        first_byte: None,
        tunnel: Some(TunnelTerms {
            idle: service.config.idle,
            sent,
        }),
        chunked: false,
        client_fin_aborts: false,
        backend: backend.id,
        progress: backend.progress(),
        done,
    };
    if let Err(flow) = hand_over(worker, flow).await {
        net::reset_on_close(&flow.upstream);
        return refuse(&flow.client, End::Overloaded);
    }
    // Dropping what comes back closes both connections, by a reset where they didn't end by themselves.
    match end.await.map(|end| end.outcome) {
        Ok(Outcome::Complete) => End::Complete,
        Ok(Outcome::ClientLeft) => End::Client,
        Ok(Outcome::UpstreamCut(_)) => {
            backend.stats.broken_total.fetch_add(1, Ordering::Relaxed);
            End::Backend
        }
        Ok(Outcome::Idle) => End::Idle,
        Ok(Outcome::Stopped) | Err(_) => End::Stopped,
    }
}

/// Puts the PROXY header in front of the client's bytes.
fn put_header(version: ProxyHeader, opened: &Opened, client: &mut Conn) {
    let mut bytes = Vec::new();
    match version {
        ProxyHeader::Off => return,
        ProxyHeader::V1 => write_v1(&opened.addresses, &mut bytes),
        ProxyHeader::V2 => write_v2(&opened.addresses, &mut bytes),
    }
    bytes.extend_from_slice(&client.read_ahead);
    client.read_ahead = BytesMut::from(&bytes[..]);
}

/// A full queue is a relay that is behind: only a relay carries tunnels, so it is asked again for a while.
async fn hand_over(worker: &Worker, flow: Flow) -> Result<(), Flow> {
    let deadline = Instant::now() + worker.shared.config.timeouts.connect;
    let mut flow = flow;
    loop {
        match worker.relay.hand_over(flow) {
            Ok(()) => return Ok(()),
            Err(back) if Instant::now() >= deadline => return Err(back),
            Err(back) => flow = back,
        }
        worker.shared.metrics.relay_queue_full_total.inc();
        tokio::time::sleep(HAND_OVER_PAUSE).await;
    }
}
