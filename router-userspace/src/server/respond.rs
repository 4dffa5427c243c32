//! The response on its way to the client.

use router_common::framing::{Framing, Progress as MessageProgress};

use super::body::Rest;
use super::client::Client;
use super::connection::After;
use super::exchange::Reply;
use super::pass::{Ended, Pass, take_ahead};
use super::request::Request;
use super::trace::Trace;
use super::worker::Worker;
use crate::backend::{CarriedBy, Charge};
use crate::datapath::{FirstByte, FlowKind, Outcome};
use crate::proto::http1::{BodyKind, ResponseForward, ResponseHead, Version, write_response_head};
use crate::types::now;

/// What goes with a request from its sending to its end.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) charge: Charge,
    pub(super) first_byte: FirstByte,
}

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

/// Passes `reply` on to the client and says what becomes of its connection.
pub(super) async fn answer(
    trace: &mut Trace,
    worker: &Worker,
    client: Client,
    request: &Request,
    reply: Reply,
    rest: &Rest,
    sent: Sent,
) -> After {
    let Sent {
        mut charge,
        first_byte,
    } = sent;
    let Reply {
        head,
        body,
        mut upstream,
        uploaded,
    } = reply;
    charge.backend().count_answer(head.status);
    trace.status(head.status);
    if head.status == 101 {
        charge.upgrade();
    }
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
    let mut first_byte = Some(first_byte);
    if (ahead > 0 || progress != MessageProgress::More)
        && let Some(first_byte) = first_byte.take()
    {
        first_byte.came(now());
    }
    if client.link.write(bytes).await.is_err() {
        worker.shared.metrics.clients_left_total.inc();
        trace.ended("client_left");
        return cut(client, plan);
    }
    trace.carried(ahead, "worker");
    let whole = u64::from(progress == MessageProgress::Done);
    charge.backend().count_carried(CarriedBy::Worker, whole, ahead);
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
                first_byte,
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
    trace.ended(match ended.outcome {
        Outcome::Complete => "complete",
        Outcome::ClientLeft => "client_left",
        Outcome::UpstreamCut(_) | Outcome::Idle => "cut",
        Outcome::Stopped => "stopped",
    });
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
        Outcome::Idle | Outcome::Stopped => {
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
