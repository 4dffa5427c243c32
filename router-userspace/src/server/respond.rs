//! The response on its way to the client.

use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;

use router_common::framing::{Framing, Progress as MessageProgress};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::HalfClose;
use super::body::Rest;
use super::client::{Client, Link};
use super::connection::After;
use super::exchange::Reply;
use super::request::Request;
use super::trace::Trace;
use super::upstream::Upstream;
use super::worker::Worker;
use crate::backend::Charge;
use crate::datapath::{Flow, FlowEnd, FlowKind, Outcome, RelayHandle, dechunk};
use crate::net::{self, Conn};
use crate::proto::http1::{BodyKind, ResponseForward, ResponseHead, Version, write_response_head};
use crate::types::now;

/// Bytes asked for by one read of a body that a worker copies.
const COPY_READ_BYTES: usize = 64 << 10;
/// How long a tunnel waits for a place in a full relay queue; the relay empties it in a turn of its loop.
const RELAY_WAIT: Duration = Duration::from_secs(5);
/// How often it asks.
const RELAY_POLL: Duration = Duration::from_millis(1);

/// How a response goes on, decided by its head.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The body's framing as it comes from the engine.
    body: BodyKind,
    /// The body's framing as it goes to the client.
    forwarded: BodyKind,
    tunnel: bool,
    /// Whether the request isn't fully read: its connections can't be used again.
    unread: bool,
    /// Whether the client's connection closes behind the response.
    close: bool,
    /// Whether the engine's connection may be used again.
    upstream_keeps: bool,
    /// Whether it is a chunked 2xx response, what the kernel path is made for.
    chunked: bool,
}

impl Plan {
    fn new(request: &Request, head: &ResponseHead, body: BodyKind, unread: bool) -> Plan {
        let tunnel = head.status == 101;
        // An HTTP/1.0 client can't read chunks: it gets the payload, ended by the close.
        let dechunks = body == BodyKind::Chunked && request.head.version == Version::Http10;
        let forwarded = if dechunks { BodyKind::Close } else { body };
        let closes = head.version == Version::Http10 || head.fields.has_member("connection", "close");
        Plan {
            body,
            forwarded,
            tunnel,
            chunked: forwarded == BodyKind::Chunked && (200..300).contains(&head.status),
            unread,
            close: request.close || forwarded == BodyKind::Close || unread,
            upstream_keeps: !closes && body != BodyKind::Close && !unread && !tunnel,
        }
    }

    fn kind(&self) -> FlowKind {
        match self.body {
            _ if self.tunnel => FlowKind::Tunnel,
            BodyKind::None => FlowKind::Body(Framing::none()),
            BodyKind::Length(length) => FlowKind::Body(Framing::length(length)),
            BodyKind::Chunked if self.forwarded == BodyKind::Close => FlowKind::Dechunked(Framing::chunked()),
            BodyKind::Chunked => FlowKind::Body(Framing::chunked()),
            BodyKind::Close => FlowKind::Body(Framing::until_close()),
        }
    }
}

/// The connections that came back, and how it went.
struct Ended {
    client: Option<Client>,
    upstream: Option<Upstream>,
    outcome: Outcome,
}

/// Passes `reply` on to the client and says what becomes of its connection.
pub(super) async fn answer(
    trace: &mut Trace,
    worker: &Worker,
    client: Client,
    request: &Request,
    reply: Reply,
    rest: &Rest,
    charge: Charge,
) -> After {
    let Reply {
        head,
        body,
        mut upstream,
        uploaded,
    } = reply;
    charge.backend().count_answer(head.status);
    trace.status(head.status);
    let plan = Plan::new(request, &head, body, !uploaded || !rest.is_empty());
    let mut bytes = Vec::with_capacity(1024);
    let forward = ResponseForward {
        body: plan.forwarded,
        close: plan.close,
        upgrade: plan.tunnel,
    };
    write_response_head(&head, forward, &mut bytes);
    let mut kind = plan.kind();
    let head_length = bytes.len();
    let progress = take_ahead(&mut kind, &mut upstream.conn, &mut bytes);
    let ahead = (bytes.len() - head_length) as u64;
    if client.link.write(bytes).await.is_err() {
        worker.shared.metrics.clients_left_total.inc();
        return cut(client, plan);
    }
    trace.carried(ahead, "worker");
    if plan.chunked {
        worker.shared.metrics.count_chunked_bytes("worker", ahead);
    }
    let ended = match progress {
        MessageProgress::Done => Ended {
            client: Some(client),
            upstream: Some(upstream),
            outcome: Outcome::Complete,
        },
        MessageProgress::Failed(error) => Ended {
            client: Some(client),
            upstream: None,
            outcome: Outcome::UpstreamCut(error.reason()),
        },
        MessageProgress::More => {
            let short = match body {
                BodyKind::Length(length) => {
                    length - ahead <= worker.shared.config.limits.short_answer_bytes_max
                }
                _ => false,
            };
            let pass = Pass {
                trace,
                worker,
                client,
                upstream,
                kind,
                charge: &charge,
                chunked: plan.chunked,
            };
            if plan.unread || (short && !plan.tunnel) {
                pass.on_worker().await
            } else {
                pass.on_relay().await
            }
        }
    };
    if ended.outcome == Outcome::Complete
        && let Some(upstream) = ended.upstream
    {
        upstream.settled();
        if plan.upstream_keeps {
            worker
                .pool
                .borrow_mut()
                .give_back(charge.backend().id, upstream, now());
        }
    }
    finish(worker, ended.client, ended.outcome, plan)
}

/// What becomes of the client's connection.
fn finish(worker: &Worker, client: Option<Client>, outcome: Outcome, plan: Plan) -> After {
    let metrics = &worker.shared.metrics;
    let Some(client) = client else { return After::Gone };
    match outcome {
        Outcome::Complete if plan.tunnel => After::Gone,
        Outcome::Complete if plan.unread => After::Linger(client),
        Outcome::Complete if plan.close => After::Close(client),
        Outcome::Complete => After::Keep(client),
        Outcome::ClientLeft => {
            // It may only have taken nothing for too long, and read on.
            metrics.clients_left_total.inc();
            cut(client, plan)
        }
        Outcome::Stopped => {
            metrics.responses_cut_total.inc();
            cut(client, plan)
        }
        // What was sent before is still the client's: answers to earlier requests above all.
        Outcome::UpstreamCut(_) => {
            metrics.responses_cut_total.inc();
            if plan.tunnel || plan.forwarded == BodyKind::Close {
                After::Reset(client)
            } else {
                After::Close(client)
            }
        }
    }
}

/// Closes at once, so that what was sent doesn't look whole.
fn cut(client: Client, plan: Plan) -> After {
    if plan.forwarded == BodyKind::Close {
        // A FIN would look like the end of the body.
        client.reset();
    }
    After::Gone
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
    trace: &'a mut Trace,
    worker: &'a Worker,
    client: Client,
    upstream: Upstream,
    kind: FlowKind,
    charge: &'a Charge,
    chunked: bool,
}

impl Pass<'_> {
    /// Hands the flow to the relay and waits for its end; copies on the worker where the relay is full.
    async fn on_relay(self) -> Ended {
        let Pass {
            trace,
            worker,
            client,
            upstream,
            kind,
            charge,
            chunked,
        } = self;
        let (done, end) = oneshot::channel();
        let Client {
            slot: mut client_slot,
            conn,
            link,
        } = client;
        if client_slot.is_none() && upstream.slot.is_some() {
            // From its first stream on; a refusal only means copying.
            client_slot = worker
                .shared
                .kernel
                .as_ref()
                .and_then(|kernel| kernel.insert_client(conn.as_fd()).ok());
        }
        let Upstream {
            slot: upstream_slot,
            conn: upstream_conn,
            ring,
            reused,
            acked_at_checkout,
        } = upstream;
        let flow = Flow {
            upstream_slot,
            client_slot,
            client: conn,
            upstream: upstream_conn,
            kind,
            chunked,
            client_fin_aborts: worker.shared.config.half_close == HalfClose::Abort,
            backend: charge.backend().id,
            progress: charge.backend().progress(),
            done,
        };
        match hand_over(&worker.relay, flow).await {
            Ok(()) => {
                let Ok(end) = end.await else {
                    return Ended {
                        client: None,
                        upstream: None,
                        outcome: Outcome::Stopped,
                    };
                };
                let FlowEnd {
                    upstream_slot,
                    client_slot,
                    client: conn,
                    upstream,
                    outcome,
                    bytes,
                    kernel_bytes,
                    ..
                } = end;
                trace.carried(bytes, if kernel_bytes > 0 { "kernel" } else { "copy" });
                let upstream = Upstream {
                    slot: upstream_slot,
                    conn: upstream,
                    ring,
                    reused,
                    acked_at_checkout,
                };
                Ended {
                    client: Some(Client {
                        slot: client_slot,
                        conn,
                        link,
                    }),
                    upstream: Some(upstream),
                    outcome,
                }
            }
            Err(Flow {
                upstream_slot,
                client_slot,
                client: conn,
                upstream,
                kind,
                ..
            }) => {
                worker.shared.metrics.relay_queue_full_total.inc();
                let client = Client {
                    slot: client_slot,
                    conn,
                    link,
                };
                let upstream = Upstream {
                    slot: upstream_slot,
                    conn: upstream,
                    ring,
                    reused,
                    acked_at_checkout,
                };
                Pass {
                    trace,
                    worker,
                    client,
                    upstream,
                    kind,
                    charge,
                    chunked,
                }
                .on_worker()
                .await
            }
        }
    }

    /// Copies to the end on the worker.
    async fn on_worker(mut self) -> Ended {
        if matches!(self.kind, FlowKind::Tunnel) {
            // A tunnel needs both directions at once, which only a relay carries.
            net::shutdown(&self.upstream.conn, std::net::Shutdown::Both);
            return Ended {
                client: Some(self.client),
                upstream: None,
                outcome: Outcome::Stopped,
            };
        }
        self.worker.shared.metrics.flow_begins("worker");
        let (outcome, bytes) = self.copy().await;
        self.worker.shared.metrics.flow_ends("worker");
        self.worker.shared.metrics.count_flow_bytes("worker", bytes);
        if self.chunked {
            self.worker.shared.metrics.count_chunked_bytes("worker", bytes);
        }
        self.trace.carried(bytes, "worker");
        if outcome != Outcome::Complete {
            net::shutdown(&self.upstream.conn, std::net::Shutdown::Both);
        }
        Ended {
            client: Some(self.client),
            upstream: Some(self.upstream),
            outcome,
        }
    }

    async fn copy(&mut self) -> (Outcome, u64) {
        let Pass {
            worker,
            client,
            upstream,
            kind,
            charge,
            ..
        } = self;
        let until_close = matches!(kind, FlowKind::Body(framing) if framing.is_until_close());
        let mut total = 0;
        loop {
            let read = match read_or_leave(worker, &client.link, upstream).await {
                Some(read) => read,
                None => return (Outcome::ClientLeft, total),
            };
            match read {
                Ok(0) if until_close => return (Outcome::Complete, total),
                Ok(0) => return (Outcome::UpstreamCut("the engine closed inside the body"), total),
                Ok(count) => charge.backend().note_bytes(count as u64, now()),
                Err(_) => {
                    let reason = "the engine's connection broke or fell silent inside the body";
                    return (Outcome::UpstreamCut(reason), total);
                }
            }
            let mut bytes = Vec::new();
            let progress = take_ahead(kind, &mut upstream.conn, &mut bytes);
            total += bytes.len() as u64;
            if client.link.write(bytes).await.is_err() {
                return (Outcome::ClientLeft, total);
            }
            match progress {
                MessageProgress::More => {}
                MessageProgress::Done => return (Outcome::Complete, total),
                MessageProgress::Failed(error) => return (Outcome::UpstreamCut(error.reason()), total),
            }
        }
    }
}

/// Hands a flow over. A tunnel waits for a place in the queue, since a worker can't carry it; all else comes back.
async fn hand_over(relay: &RelayHandle, mut flow: Flow) -> Result<(), Flow> {
    let deadline = Instant::now() + RELAY_WAIT;
    loop {
        match relay.hand_over(flow) {
            Err(back) if matches!(back.kind, FlowKind::Tunnel) && Instant::now() < deadline => flow = back,
            done => return done,
        }
        tokio::time::sleep(RELAY_POLL).await;
    }
}

/// Reads more of the body; `None` = the client left, and the engine's connection is shut down.
async fn read_or_leave(
    worker: &Worker,
    link: &Link,
    upstream: &mut Upstream,
) -> Option<Result<usize, net::IoFailure>> {
    let deadline = Instant::now() + worker.shared.config.timeouts.stream_idle;
    let Upstream { conn, ring, .. } = upstream;
    let mut read = pin!(ring.read(conn, COPY_READ_BYTES, Some(deadline)));
    tokio::select! {
        biased;
        read = &mut read => Some(read),
        () = worker.client_leaves(link) => {
            net::shutdown(&*ring, std::net::Shutdown::Both);
            let _ = read.await;
            None
        }
    }
}
