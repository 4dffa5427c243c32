//! The response on its way to the client.

use std::pin::pin;

use router_common::framing::{Framing, Progress as MessageProgress};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::HalfClose;
use super::body::Rest;
use super::client::{Client, Link};
use super::connection::After;
use super::exchange::Reply;
use super::request::Request;
use super::worker::Worker;
use crate::backend::Charge;
use crate::datapath::{Flow, FlowEnd, FlowKind, Outcome, dechunk};
use crate::net::{self, Conn, RingStream};
use crate::proto::http1::{BodyKind, ResponseForward, Version, write_response_head};
use crate::types::now;

/// Bytes asked for by one read of a body that a worker copies.
const COPY_READ_BYTES: usize = 64 << 10;

/// Passes `reply` on to the client and says what becomes of its connection.
pub(super) async fn answer(
    worker: &Worker,
    client: Client,
    request: &Request,
    reply: Reply,
    rest: &mut Rest,
    charge: Charge,
) -> After {
    let shared = &worker.shared;
    let Reply {
        head,
        body,
        mut upstream,
        uploaded,
    } = reply;
    count(&charge, head.status);
    shared.metrics.count_response(head.status);
    let tunnel = head.status == 101;
    // An HTTP/1.0 client can't read chunks: it gets the payload, ended by the close.
    let dechunks = body == BodyKind::Chunked && request.head.version == Version::Http10;
    let forwarded = if dechunks { BodyKind::Close } else { body };
    let unread = !uploaded || !rest.is_empty();
    let close = request.close || forwarded == BodyKind::Close || unread;
    let upstream_keeps = head.version == Version::Http11
        && !head.fields.has_member("connection", "close")
        && !matches!(body, BodyKind::Close)
        && !unread
        && !tunnel;
    let mut bytes = Vec::with_capacity(1024);
    write_response_head(
        &head,
        ResponseForward {
            body: forwarded,
            close,
            upgrade: tunnel,
        },
        &mut bytes,
    );
    let mut kind = match body {
        _ if tunnel => FlowKind::Tunnel,
        BodyKind::None => FlowKind::Body(Framing::none()),
        BodyKind::Length(length) => FlowKind::Body(Framing::length(length)),
        BodyKind::Chunked if dechunks => FlowKind::Dechunked(Framing::chunked()),
        BodyKind::Chunked => FlowKind::Body(Framing::chunked()),
        BodyKind::Close => FlowKind::Body(Framing::until_close()),
    };
    let head_length = bytes.len();
    let progress = take_ahead(&mut kind, &mut upstream.conn, &mut bytes);
    let ahead = (bytes.len() - head_length) as u64;
    if client.link.write(bytes).await.is_err() {
        shared.metrics.clients_left_total.inc();
        return After::Gone;
    }
    let outcome = match progress {
        MessageProgress::Done => Ended {
            client: Some(client),
            upstream: Some(upstream.conn),
            outcome: Outcome::Complete,
        },
        MessageProgress::Failed(error) => Ended {
            client: Some(client),
            upstream: None,
            outcome: Outcome::UpstreamCut(error.reason()),
        },
        MessageProgress::More => {
            let short = match body {
                BodyKind::Length(length) => length - ahead <= shared.config.limits.short_answer_bytes_max,
                _ => false,
            };
            let flow = Pass {
                worker,
                client,
                upstream: upstream.conn,
                ring: &upstream.ring,
                kind,
                charge: &charge,
            };
            if unread || (short && !tunnel) {
                flow.on_worker().await
            } else {
                flow.on_relay().await
            }
        }
    };
    let ended = outcome;
    if ended.outcome == Outcome::Complete
        && upstream_keeps
        && let Some(conn) = ended.upstream
    {
        let backend = charge.backend().id;
        worker
            .pool
            .borrow_mut()
            .give_back(backend, conn, upstream.ring, now());
    }
    drop(charge);
    shared
        .metrics
        .request_seconds
        .observe(now().since(request.started).as_secs_f64());
    finish(
        worker,
        ended.client,
        ended.outcome,
        forwarded,
        close,
        unread,
        tunnel,
    )
}

/// What becomes of the client's connection.
fn finish(
    worker: &Worker,
    client: Option<Client>,
    outcome: Outcome,
    forwarded: BodyKind,
    close: bool,
    unread: bool,
    tunnel: bool,
) -> After {
    let metrics = &worker.shared.metrics;
    let Some(client) = client else { return After::Gone };
    match outcome {
        Outcome::Complete if tunnel => After::Gone,
        Outcome::Complete if unread => After::Linger(client),
        Outcome::Complete if close => After::Close(client),
        Outcome::Complete => After::Keep(client),
        Outcome::ClientLeft => {
            metrics.clients_left_total.inc();
            After::Gone
        }
        Outcome::UpstreamCut(reason) => {
            metrics.responses_cut_total.inc();
            tracing::debug!("response cut: {reason}");
            if forwarded == BodyKind::Close {
                client.reset();
            }
            After::Gone
        }
        Outcome::Stopped => {
            if forwarded == BodyKind::Close {
                client.reset();
            }
            After::Gone
        }
    }
}

fn count(charge: &Charge, status: u16) {
    let class = match status {
        400..=499 => 1,
        500..=999 => 2,
        _ => 0,
    };
    charge.backend().stats.answers_total[class].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// Appends what has been read of the body already to `out`.
fn take_ahead(kind: &mut FlowKind, conn: &mut Conn, out: &mut Vec<u8>) -> MessageProgress {
    match kind {
        FlowKind::Tunnel => {
            out.extend_from_slice(&conn.read_ahead.split());
            MessageProgress::More
        }
        FlowKind::Body(framing) => {
            let step = framing.advance(&conn.read_ahead);
            out.extend_from_slice(&conn.read_ahead.split_to(step.consumed));
            step.progress
        }
        FlowKind::Dechunked(framing) => {
            let (length, consumed, progress) = dechunk(framing, &mut conn.read_ahead);
            let part = conn.read_ahead.split_to(consumed);
            out.extend_from_slice(&part[..length]);
            progress
        }
    }
}

/// A body whose head has been written and that isn't complete yet.
struct Pass<'a> {
    worker: &'a Worker,
    client: Client,
    upstream: Conn,
    ring: &'a RingStream,
    kind: FlowKind,
    charge: &'a Charge,
}

/// The connections that came back, and how it went.
struct Ended {
    client: Option<Client>,
    upstream: Option<Conn>,
    outcome: Outcome,
}

impl Pass<'_> {
    /// Hands the flow to the relay and waits for its end; copies on the worker where the relay is full.
    async fn on_relay(self) -> Ended {
        let Pass {
            worker,
            client,
            upstream,
            ring,
            kind,
            charge,
        } = self;
        let (done, end) = oneshot::channel();
        let Client { conn, link } = client;
        let flow = Flow {
            client: conn,
            upstream,
            kind,
            client_fin_aborts: worker.shared.config.half_close == HalfClose::Abort,
            progress: charge.backend().progress(),
            done,
        };
        match worker.relay.hand_over(flow) {
            Ok(()) => match end.await {
                Ok(FlowEnd {
                    client: conn,
                    upstream,
                    outcome,
                    ..
                }) => Ended {
                    client: Some(Client { conn, link }),
                    upstream: Some(upstream),
                    outcome,
                },
                Err(_) => Ended {
                    client: None,
                    upstream: None,
                    outcome: Outcome::Stopped,
                },
            },
            Err(Flow {
                client: conn,
                upstream,
                kind,
                ..
            }) => {
                worker.shared.metrics.relay_queue_full_total.inc();
                let client = Client { conn, link };
                Pass {
                    worker,
                    client,
                    upstream,
                    ring,
                    kind,
                    charge,
                }
                .on_worker()
                .await
            }
        }
    }

    /// Copies to the end on the worker.
    async fn on_worker(self) -> Ended {
        let Pass {
            worker,
            client,
            mut upstream,
            ring,
            mut kind,
            charge,
        } = self;
        if matches!(kind, FlowKind::Tunnel) {
            // A tunnel needs both directions at once, which only a relay carries.
            net::shutdown(&upstream, std::net::Shutdown::Both);
            return Ended {
                client: Some(client),
                upstream: None,
                outcome: Outcome::Stopped,
            };
        }
        worker.shared.metrics.flow_begins("worker");
        let outcome = copy(worker, &client.link, &mut upstream, ring, &mut kind, charge).await;
        worker.shared.metrics.flow_ends("worker");
        if outcome != Outcome::Complete {
            net::shutdown(&upstream, std::net::Shutdown::Both);
        }
        Ended {
            client: Some(client),
            upstream: Some(upstream),
            outcome,
        }
    }
}

async fn copy(
    worker: &Worker,
    link: &Link,
    upstream: &mut Conn,
    ring: &RingStream,
    kind: &mut FlowKind,
    charge: &Charge,
) -> Outcome {
    let until_close = matches!(kind, FlowKind::Body(framing) if framing.is_until_close());
    loop {
        let deadline = Instant::now() + worker.shared.config.timeouts.stream_idle;
        let read = {
            let mut read = pin!(ring.read(upstream, COPY_READ_BYTES, Some(deadline)));
            tokio::select! {
                biased;
                read = &mut read => read,
                () = leaves(worker, link) => {
                    net::shutdown(ring, std::net::Shutdown::Both);
                    let _ = read.await;
                    return Outcome::ClientLeft;
                }
            }
        };
        match read {
            Ok(0) if until_close => return Outcome::Complete,
            Ok(0) => return Outcome::UpstreamCut("the engine closed inside the body"),
            Ok(count) => charge.backend().note_bytes(count as u64, now()),
            Err(_) => {
                return Outcome::UpstreamCut("the engine's connection broke or fell silent inside the body");
            }
        }
        let mut bytes = Vec::new();
        let progress = take_ahead(kind, upstream, &mut bytes);
        worker
            .shared
            .metrics
            .count_flow_bytes("worker", bytes.len() as u64);
        if link.write(bytes).await.is_err() {
            return Outcome::ClientLeft;
        }
        match progress {
            MessageProgress::More => {}
            MessageProgress::Done => return Outcome::Complete,
            MessageProgress::Failed(error) => return Outcome::UpstreamCut(error.reason()),
        }
    }
}

async fn leaves(worker: &Worker, link: &Link) {
    match worker.shared.config.half_close {
        HalfClose::Abort => link.departure.wait().await,
        HalfClose::Serve => std::future::pending().await,
    }
}
