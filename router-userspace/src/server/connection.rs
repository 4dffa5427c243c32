//! A client connection's life: one request after another, in order.

use bytes::Buf;
use tokio::time::Instant;

use super::StopPhase;
use super::client::Client;
use super::own::{self, OwnAnswer};
use super::paths::{Passage, passage};
use super::request::{self, Request};
use super::trace::Trace;
use super::worker::Worker;
use crate::net::IoFailure;
use crate::proto::http1::{
    BodyKind, HeadError, HeadLimits, RequestHead, Version, parse_request, request_body,
};
use crate::telemetry::OwnError;
use crate::types::{Micros, now};

/// Bytes asked for by one read of a head; an idle connection holds a buffer of this size.
const HEAD_READ_BYTES: usize = 4096;

/// What became of the connection after a request.
pub(super) enum After {
    /// The next request may come.
    Keep(Client),
    /// The answer is complete and the connection closes behind it.
    Close(Client),
    /// The request's body wasn't read to its end: what the client still sends is taken for a while.
    Linger(Client),
    /// It is gone, or was closed on purpose.
    Gone,
}

/// Serves `client` until one side closes.
pub(super) async fn serve(worker: &Worker, mut client: Client) {
    loop {
        let after = match next_head(worker, &mut client).await {
            Ok(Some((head, started))) => one(worker, client, head, started).await,
            Ok(None) => return,
            Err(answer) => {
                let mut trace = Trace::unreadable(&worker.shared, client.link.peer);
                refuse(&mut trace, worker, client, &answer, None).await
            }
        };
        client = match after {
            After::Keep(client) => client,
            After::Close(client) => return client.close_gently().await,
            After::Linger(client) => return client.linger().await,
            After::Gone => return,
        };
    }
}

/// Reads the next request's head; `None` = the connection ended between requests.
async fn next_head(worker: &Worker, client: &mut Client) -> Result<Option<(RequestHead, Micros)>, OwnAnswer> {
    let config = &worker.shared.config;
    let limits = HeadLimits {
        bytes_max: config.limits.head_bytes_max,
        fields_max: config.limits.head_fields_max,
    };
    let mut started = None;
    loop {
        let ahead = &mut client.conn.read_ahead;
        // Empty lines between requests are nobody's request (RFC 9112 section 2.2): the connection is still idle.
        if started.is_none() {
            let empty = ahead
                .iter()
                .take_while(|byte| matches!(byte, b'\r' | b'\n'))
                .count();
            ahead.advance(empty);
        }
        if started.is_none() && !ahead.is_empty() {
            started = Some((now(), Instant::now() + config.timeouts.head));
        }
        if let Some((head, length)) = parse_request(ahead, limits).map_err(bad_head)? {
            let _ = ahead.split_to(length);
            return Ok(started.map(|(at, _)| (head, at)));
        }
        let read = match started {
            Some((_, deadline)) => {
                client
                    .link
                    .ring
                    .read(&mut client.conn, HEAD_READ_BYTES, Some(deadline))
                    .await
            }
            None => {
                let deadline = Instant::now() + config.timeouts.keep_alive;
                let mut stop = worker.stop.clone();
                let idle = client
                    .link
                    .ring
                    .read(&mut client.conn, HEAD_READ_BYTES, Some(deadline));
                let mut idle = std::pin::pin!(idle);
                let first = tokio::select! {
                    biased;
                    read = &mut idle => Some(read),
                    _ = stop.wait_for(|phase| *phase != StopPhase::Running) => None,
                };
                match first {
                    Some(read) => read,
                    None => {
                        // An idle connection has nothing to finish. Its read ends when the socket is shut down.
                        crate::net::shutdown(&client.link.ring, std::net::Shutdown::Both);
                        idle.await
                    }
                }
            }
        };
        match read {
            Ok(0) | Err(IoFailure::Broken(_)) => return Ok(None),
            Ok(_) => {}
            Err(IoFailure::TimedOut) if started.is_none() => return Ok(None),
            Err(IoFailure::TimedOut) => {
                let message = format!(
                    "the head did not arrive within {:?} (timeouts.head)",
                    config.timeouts.head
                );
                return Err(OwnAnswer::new(OwnError::RequestTimeout, message));
            }
        }
    }
}

fn bad_head(error: HeadError) -> OwnAnswer {
    let kind = match error {
        HeadError::Malformed(_) => OwnError::BadRequest,
        HeadError::TooLong | HeadError::TooManyFields => OwnError::HeadTooLarge,
    };
    OwnAnswer::new(kind, error.to_string())
}

/// Serves one request.
async fn one(worker: &Worker, client: Client, head: RequestHead, started: Micros) -> After {
    let shared = &worker.shared;
    shared.budget.note_request(started);
    let mut trace = Trace::new(shared, &head, client.link.peer, started);
    let kind = match check(worker, &head) {
        Ok(kind) => kind,
        Err(answer) => return refuse(&mut trace, worker, client, &answer, Some(&head)).await,
    };
    let close =
        head.version == Version::Http10 || head.fields.has_member("connection", "close") || worker.stopping();
    match passage(head.path(), shared.config.paths) {
        Passage::Pass => request::serve(&mut trace, worker, client, Request { head, kind, close }).await,
        Passage::OwnHealth if matches!(kind, BodyKind::None | BodyKind::Length(0)) => {
            let (status, bytes) = own::health(worker.any_healthy(), head.method() == b"HEAD", close);
            trace.status(status);
            match client.link.write(bytes).await {
                Ok(()) if close => After::Close(client),
                Ok(()) => After::Keep(client),
                Err(_) => After::Gone,
            }
        }
        refused => {
            refuse(
                &mut trace,
                worker,
                client,
                &refused_path(refused, &head),
                Some(&head),
            )
            .await
        }
    }
}

fn refused_path(refused: Passage, head: &RequestHead) -> OwnAnswer {
    let path = String::from_utf8_lossy(head.path());
    match refused {
        Passage::Control => OwnAnswer::new(
            OwnError::PathRefused,
            format!(
                "{path} controls the engine and is closed; the operator can open it with paths = \"all\""
            ),
        ),
        _ => OwnAnswer::new(
            OwnError::PathRefused,
            format!(
                "{path} is not an endpoint that this router passes; paths = \"all\" would pass every path"
            ),
        )
        .with_status(404),
    }
}

/// What RFC 9112 and the limits demand of a request before anything is done for it.
fn check(worker: &Worker, head: &RequestHead) -> Result<BodyKind, OwnAnswer> {
    let bad = |reason: &str| OwnAnswer::new(OwnError::BadRequest, reason);
    let mut hosts = head.fields.values("host");
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(bad("Host is present more than once")),
        (None, None) if head.version == Version::Http11 => return Err(bad("Host is missing")),
        (Some(host), None)
            if host
                .iter()
                .any(|byte| matches!(byte, 0..=b' ' | b'/' | b'@' | b',' | b'?' | b'#')) =>
        {
            return Err(bad("Host is malformed"));
        }
        _ => {}
    }
    let target = head.target();
    if head.method() == b"CONNECT" {
        return Err(bad("CONNECT is not served").with_status(405));
    }
    let plain = target.starts_with(b"/") || (target == b"*" && head.method() == b"OPTIONS");
    if !plain
        && head
            .absolute_form()
            .is_none_or(|(authority, _)| authority.is_empty() || authority.contains(&b'@'))
    {
        return Err(bad("the request target is malformed"));
    }
    if target.contains(&b'#') {
        return Err(bad("the request target has a fragment"));
    }
    let kind = request_body(head).map_err(bad_head)?;
    match kind {
        BodyKind::Length(length) if length > worker.shared.config.limits.body_bytes_max => {
            Err(super::body::too_large(&worker.shared.config.limits))
        }
        kind => Ok(kind),
    }
}

/// Answers an error of the router's own and closes; `head` is missing where it couldn't be read.
pub(super) async fn refuse(
    trace: &mut Trace,
    worker: &Worker,
    client: Client,
    answer: &OwnAnswer,
    head: Option<&RequestHead>,
) -> After {
    worker.shared.metrics.count_own_error(answer.error);
    trace.status(answer.status);
    let (path, head_only) = head.map_or((&b""[..], false), |head| (head.path(), head.method() == b"HEAD"));
    match client.link.write(answer.encode(path, head_only, true)).await {
        Ok(()) => After::Linger(client),
        Err(_) => After::Gone,
    }
}
