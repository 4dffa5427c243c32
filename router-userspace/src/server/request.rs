//! One request: hold its body, choose, try, answer.

use std::sync::Arc;
use std::time::Duration;

use super::body::{Body, BodyError, Held, Rest};
use super::client::Client;
use super::connection::{After, refuse};
use super::exchange::{Exchange, Failure, Reply};
use super::own::OwnAnswer;
use super::respond::{self, Sent};
use super::retry::backoff;
use super::trace::{Trace, unix_ms};
use super::worker::Worker;
use crate::backend::{Backend, Charge};
use crate::datapath::FirstByte;
use crate::policy::{NoBackend, RequestView, Ticket};
use crate::prefix::{Api, KeyScanner, PromptKey};
use crate::proto::http1::{BodyKind, RequestHead, Version};
use crate::telemetry::{DecisionRecord, OwnError};
use crate::types::{BackendId, BackendState, Micros, now};

/// A request whose head has been accepted.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: RequestHead,
    pub(super) kind: BodyKind,
    /// Whether the client's connection closes behind the answer.
    pub(super) close: bool,
}

impl Request {
    fn head_only(&self) -> bool {
        self.head.method() == b"HEAD"
    }

    /// Whether it is a generation call that leaves nothing behind on its engine; `/v1/responses` keeps its answers.
    fn stateless_generation(&self) -> bool {
        self.head.method() == b"POST"
            && Api::of_path(self.head.path()).is_some_and(|api| api != Api::Responses)
    }

    /// RFC 9110 section 9.2.2.
    fn idempotent(&self) -> bool {
        matches!(
            self.head.method(),
            b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE"
        )
    }
}

/// Serves a request that passes to an engine.
pub(super) async fn serve(trace: &mut Trace, worker: &Worker, mut client: Client, request: Request) -> After {
    let (held, mut rest, key) = match hold_body(worker, &mut client, &request).await {
        Ok(body) => body,
        Err(BodyError::ClientLeft) => {
            worker.shared.metrics.clients_left_total.inc();
            return After::Gone;
        }
        Err(BodyError::Refused(answer)) => {
            return refuse(trace, worker, client, &answer, Some(&request.head)).await;
        }
    };
    let mut tries = Tries::default();
    loop {
        let (charge, backend) = match choose(trace, worker, &request, key.as_ref(), &mut tries) {
            Ok(chosen) => chosen,
            Err(answer) => return own_answer(trace, worker, client, &request, &rest, answer).await,
        };
        let sent_from = now();
        let exchange = Exchange {
            worker,
            backend: &backend,
            request: &request,
            held: &held,
        };
        match exchange.run(&mut client, &mut rest, tries.fresh_only).await {
            Ok(reply) => {
                if may_try_elsewhere(worker, &held, &reply, &tries, backend.id) {
                    // Passed on or not, health has to know what it answered.
                    backend.count_answer(reply.head.status);
                    tries.fail(backend.id, false);
                    continue;
                }
                drop(held);
                trace.first_byte(now().since(sent_from));
                let first_byte = first_byte(worker, tries.ticket.take(), sent_from, reply.head.status);
                let sent = Sent { charge, first_byte };
                return respond::answer(trace, worker, client, &request, reply, &rest, sent).await;
            }
            Err(Failure::ClientLeft) => {
                worker.shared.metrics.clients_left_total.inc();
                return After::Gone;
            }
            Err(Failure::Refused(answer)) => {
                return refuse(trace, worker, client, &answer, Some(&request.head)).await;
            }
            Err(Failure::Upstream {
                repeatable,
                stale,
                began,
                died,
                answer,
            }) => {
                drop(charge);
                let generation = died
                    && worker.shared.config.retry.generation
                    && request.stateless_generation()
                    && !tries.repeated;
                tries.repeated |= generation && !repeatable;
                let repeatable =
                    (repeatable || generation || request.idempotent()) && !began && held.complete();
                let somewhere = stale || others_fit(worker, &tries, backend.id);
                if !repeatable || !somewhere || !tries.another(worker, stale) {
                    return own_answer(trace, worker, client, &request, &rest, answer).await;
                }
                tries.fail(backend.id, stale);
                tries.last_answer = Some(answer);
                worker.shared.metrics.retries_total.inc();
                if !stale {
                    let wait = backoff(tries.count + 1, &mut worker.rng.borrow_mut());
                    if !wait_for_client(worker, &client, wait).await {
                        worker.shared.metrics.clients_left_total.inc();
                        return After::Gone;
                    }
                }
            }
        }
    }
}

/// The tries of one request so far.
#[derive(Debug, Default)]
struct Tries {
    count: u32,
    failed: Vec<BackendId>,
    /// The next try goes to the same backend by a new connection: a kept one had died unnoticed.
    fresh_only: bool,
    same: Option<BackendId>,
    last_answer: Option<OwnAnswer>,
    /// The request's place in the policy's book of its backend's work.
    ticket: Option<Ticket>,
    /// Whether a generation call was repeated although its engine may have begun it.
    repeated: bool,
}

impl Tries {
    /// Whether the rules allow one more.
    fn another(&self, worker: &Worker, stale: bool) -> bool {
        let retry = &worker.shared.config.retry;
        if stale {
            return !self.fresh_only;
        }
        if self.count >= retry.tries_max {
            return false;
        }
        let granted = worker.shared.budget.take(retry, now());
        if !granted {
            worker.shared.metrics.retries_denied_total.inc();
        }
        granted
    }

    fn fail(&mut self, backend: BackendId, stale: bool) {
        self.fresh_only = stale;
        self.same = stale.then_some(backend);
        if !stale {
            self.ticket = None;
            self.failed.push(backend);
        }
    }
}

async fn hold_body(
    worker: &Worker,
    client: &mut Client,
    request: &Request,
) -> Result<(Held, Rest, Option<PromptKey>), BodyError> {
    let config = &worker.shared.config;
    let mut body = Body::new(request.kind, worker.shared.body_memory.lease());
    let mut scanner = Api::of_path(request.head.path())
        .filter(|_| request.head.method() == b"POST")
        .map(|api| Box::new(KeyScanner::new(api)));
    let waits_for_100 =
        request.head.version == Version::Http11 && request.head.fields.has_member("expect", "100-continue");
    if waits_for_100 && !body.complete() && client.conn.read_ahead.is_empty() {
        let written = client.link.write(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()).await;
        written.map_err(|_| BodyError::ClientLeft)?;
    }
    let Client { conn, link, .. } = client;
    let seen = |part: &[u8]| {
        if let Some(scanner) = &mut scanner {
            scanner.feed(part);
        }
    };
    body.hold(conn, link, &config.limits, &config.timeouts, seen)
        .await?;
    let (held, rest) = body.freeze();
    Ok((held, rest, scanner.map(|scanner| scanner.finish())))
}

/// Picks a backend and charges it; the answer says why there's none.
fn choose(
    trace: &mut Trace,
    worker: &Worker,
    request: &Request,
    key: Option<&PromptKey>,
    tries: &mut Tries,
) -> Result<(Charge, Arc<Backend>), OwnAnswer> {
    let shared = &worker.shared;
    tries.count += 1;
    if let Some(backend) = tries.same.take().and_then(|id| shared.backends.get(id)) {
        return Ok((backend.charge(), Arc::clone(backend)));
    }
    let view = RequestView {
        key,
        session: None,
        tried: &tries.failed,
        now: now(),
    };
    let decision = worker.pick(&view);
    let reason = match &decision {
        Ok(decision) => decision.reason.as_str(),
        Err(NoBackend::AllSaturated) => "all_saturated",
        Err(NoBackend::NoneHealthy) => "none_healthy",
    };
    shared.metrics.count_decision(reason);
    let chosen = decision
        .as_ref()
        .ok()
        .and_then(|decision| shared.backends.get(decision.backend));
    trace.chosen(
        chosen.map_or("", |backend| &backend.config.name),
        reason,
        tries.count - 1,
    );
    shared.decisions.push(DecisionRecord {
        time_unix_ms: unix_ms(),
        path: String::from_utf8_lossy(request.head.path()).into_owned(),
        backend: chosen.map_or(String::new(), |backend| backend.config.name.clone()),
        reason,
        policy: shared.policy_name,
        try_number: tries.count,
        prompt_bytes: key.map_or(0, |key| key.text_bytes),
        in_flight: shared
            .backends
            .backends
            .iter()
            .map(|backend| backend.in_flight())
            .collect(),
    });
    match (chosen, decision) {
        (Some(backend), _) => {
            tries.ticket = worker.on_dispatch(&view, backend.id);
            Ok((backend.charge(), Arc::clone(backend)))
        }
        // The backend that failed was the last one: its failure says more than that none is left.
        (None, _) if tries.last_answer.is_some() => Err(tries.last_answer.take().unwrap_or_else(no_backend)),
        (None, Err(NoBackend::AllSaturated)) => Err(OwnAnswer::new(
            OwnError::Saturated,
            "every healthy backend is at its limit (max_in_flight, max_waiting); try again",
        )),
        (None, _) => Err(no_backend()),
    }
}

fn no_backend() -> OwnAnswer {
    OwnAnswer::new(
        OwnError::NoBackend,
        "no healthy backend; see /backends on the admin address",
    )
}

/// What the first byte of the answer's body is told to: the policy's book, and the metrics.
fn first_byte(worker: &Worker, ticket: Option<Ticket>, sent_from: Micros, status: u16) -> FirstByte {
    let ttft = (200..300)
        .contains(&status)
        .then(|| worker.shared.metrics.ttft_seconds.clone());
    FirstByte::new(move |at| {
        if let Some(ttft) = ttft {
            ttft.observe(at.since(sent_from).as_secs_f64());
        }
        if let Some(mut ticket) = ticket {
            ticket.first_token(at);
        }
    })
}

/// Whether an engine's refusal (by config 429 or 503) should be tried on another one.
fn may_try_elsewhere(worker: &Worker, held: &Held, reply: &Reply, tries: &Tries, from: BackendId) -> bool {
    let shared = &worker.shared;
    // Without another that could take it, the engine's own words are the best answer there is.
    let others = others_fit(worker, tries, from);
    if !shared.config.retry.statuses.contains(&reply.head.status) || !held.complete() || !others {
        return false;
    }
    let again = tries.another(worker, false);
    if again {
        shared.metrics.retries_total.inc();
    }
    again
}

/// Whether a backend other than `from` that wasn't tried could take the request.
fn others_fit(worker: &Worker, tries: &Tries, from: BackendId) -> bool {
    worker.shared.backends.backends.iter().any(|backend| {
        let snapshot = backend.snapshot();
        let fit = snapshot.state == BackendState::Healthy && !snapshot.saturated();
        fit && backend.id != from && !tries.failed.contains(&backend.id)
    })
}

/// Answers an error of the router's own; the connection stays usable where the whole request was read.
async fn own_answer(
    trace: &mut Trace,
    worker: &Worker,
    client: Client,
    request: &Request,
    rest: &Rest,
    answer: OwnAnswer,
) -> After {
    if !rest.is_empty() || request.close {
        return refuse(trace, worker, client, &answer, Some(&request.head)).await;
    }
    worker.shared.metrics.count_own_error(answer.error);
    trace.status(answer.status);
    match client
        .link
        .write(answer.encode(request.head.path(), request.head_only(), false))
        .await
    {
        Ok(()) => After::Keep(client),
        Err(_) => After::Gone,
    }
}

/// Waits; `false` = the client left meanwhile.
async fn wait_for_client(worker: &Worker, client: &Client, wait: Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(wait) => true,
        () = worker.client_leaves(&client.link) => false,
    }
}
