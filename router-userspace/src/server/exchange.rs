//! One try: a connection to the engine, the request sent, the response's head read.

use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::Instant;

use super::body::{BodyError, Held, Rest, StreamError};
use super::client::{Client, Link};
use super::own::OwnAnswer;
use super::request::Request;
use super::upstream::{Upstream, open};
use super::worker::Worker;
use crate::backend::Backend;
use crate::net::{self, Conn, IoFailure, RingStream};
use crate::proto::http1::{
    BodyKind, HeadLimits, RequestForward, ResponseForward, ResponseHead, Version, parse_response,
    response_body, write_request_head, write_response_head,
};
use crate::telemetry::OwnError;
use crate::types::now;

/// Bytes asked for by one read of a response's head, and so of a short answer.
const REPLY_READ_BYTES: usize = 16 << 10;
/// Interim responses that may come before the final one.
const INTERIM_MAX: u32 = 16;

/// Time that a request's last bytes get to be taken once its answer has begun.
const UPLOAD_GRACE: Duration = Duration::from_millis(20);

/// A response whose head has been read.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) head: ResponseHead,
    pub(super) body: BodyKind,
    pub(super) upstream: Upstream,
    /// Whether the whole request had been sent when it came. If not, a read of the client may be under way.
    pub(super) uploaded: bool,
}

/// Why a try gave no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client left; the engine's connection has been closed.
    ClientLeft,
    /// The client's side of the request was at fault.
    Refused(OwnAnswer),
    /// The engine's side failed.
    Upstream {
        /// Whether the engine can't have acted on the request.
        repeatable: bool,
        /// Whether a kept connection had died unnoticed: a new one to the same engine is worth a try.
        stale: bool,
        /// Whether the engine had begun to answer, or may be busy with the request: then it is never sent again.
        began: bool,
        /// Whether the engine went away in silence: by config a generation call may be repeated elsewhere.
        died: bool,
        answer: OwnAnswer,
    },
}

/// One try at one backend.
pub(super) struct Exchange<'a> {
    pub(super) worker: &'a Worker,
    pub(super) backend: &'a Backend,
    pub(super) request: &'a Request,
    pub(super) held: &'a Held,
}

impl Exchange<'_> {
    pub(super) async fn run(
        &self,
        client: &mut Client,
        rest: &mut Rest,
        fresh_only: bool,
    ) -> Result<Reply, Failure> {
        let mut upstream = self.connect(client, fresh_only).await?;
        match self.talk(client, rest, &mut upstream).await {
            Ok(Answered { head, body, uploaded }) => Ok(Reply {
                head,
                body,
                upstream,
                uploaded,
            }),
            Err(Trouble::ClientLeft) => Err(Failure::ClientLeft),
            Err(Trouble::Refused(answer)) => Err(Failure::Refused(answer)),
            Err(Trouble::Upstream {
                error,
                message,
                began,
            }) => {
                let untouched = upstream.untouched();
                let stale = upstream.reused && untouched && !began;
                self.backend
                    .stats
                    .broken_total
                    .fetch_add(u64::from(!stale), std::sync::atomic::Ordering::Relaxed);
                let answer =
                    OwnAnswer::new(error, format!("backend {}: {message}", self.backend.config.name));
                let died = !began && error == OwnError::BadGateway;
                Err(Failure::Upstream {
                    repeatable: stale,
                    stale,
                    began,
                    died,
                    answer,
                })
            }
        }
    }

    async fn connect(&self, client: &Client, fresh_only: bool) -> Result<Upstream, Failure> {
        let shared = &self.worker.shared;
        if !fresh_only {
            let kept = self.worker.pool.borrow_mut().take(self.backend.id, now());
            if let Some(upstream) = kept {
                shared.metrics.upstreams_reused_total.inc();
                return Ok(upstream);
            }
        }
        let opened = tokio::select! {
            opened = open(self.backend, shared.kernel.as_ref(), &shared.config.timeouts) => opened,
            () = self.worker.client_leaves(&client.link) => return Err(Failure::ClientLeft),
        };
        shared.metrics.upstreams_opened_total.inc();
        opened.map_err(|failure| {
            self.backend
                .stats
                .connect_failures_total
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let name = &self.backend.config.name;
            let message = match failure {
                IoFailure::TimedOut => {
                    format!(
                        "backend {name}: no connection within {:?} (timeouts.connect)",
                        shared.config.timeouts.connect
                    )
                }
                IoFailure::Broken(error) => format!("backend {name}: no connection: {error}"),
            };
            Failure::Upstream {
                repeatable: true,
                stale: false,
                began: false,
                died: true,
                answer: OwnAnswer::new(OwnError::BadGateway, message),
            }
        })
    }

    /// Sends the request and reads the response's head, watching the client all the while.
    async fn talk(
        &self,
        client: &mut Client,
        rest: &mut Rest,
        upstream: &mut Upstream,
    ) -> Result<Answered, Trouble> {
        let timeouts = &self.worker.shared.config.timeouts;
        let limits = &self.worker.shared.config.limits;
        let Client { conn, link, .. } = client;
        let link: &Link = link;
        let Upstream {
            conn: upstream_conn,
            ring,
            ..
        } = upstream;
        let ring: &RingStream = ring;
        let head = self.request_head();
        let upload = async {
            self.held
                .send(head, ring, timeouts)
                .await
                .map_err(StreamError::Upstream)?;
            rest.stream(conn, link, ring, limits, timeouts).await
        };
        let mut upload = pin!(upload);
        let mut reply = pin!(self.read_reply(upstream_conn, ring, link));
        let mut uploading = true;
        let mut first_byte_deadline = None;
        loop {
            tokio::select! {
                biased;
                sent = &mut upload, if uploading => {
                    uploading = false;
                    first_byte_deadline = timeouts.first_byte.map(|limit| Instant::now() + limit);
                    // The engine may have answered before it stopped taking the body: then that's the answer.
                    match sent {
                        Err(StreamError::Client(error)) => {
                            close_and_settle(ring, reply.as_mut()).await;
                            return Err(error.into());
                        }
                        Err(StreamError::Upstream(IoFailure::TimedOut)) => {
                            // The deadline has shut the connection down, so that no answer comes either.
                            close_and_settle(ring, reply.as_mut()).await;
                            let message = "it took no more of the request (timeouts.upstream_write)".to_owned();
                            return Err(Trouble::Upstream { error: OwnError::BadGateway, message, began: true });
                        }
                        Ok(()) | Err(StreamError::Upstream(IoFailure::Broken(_))) => {}
                    }
                }
                reply = &mut reply => {
                    let (head, body) = reply?;
                    if uploading && self.held.complete() {
                        // The last write's completion may be a moment behind the answer to it.
                        uploading = tokio::time::timeout(UPLOAD_GRACE, &mut upload).await.is_err();
                    }
                    return Ok(Answered { head, body, uploaded: !uploading });
                }
                () = self.worker.client_leaves(link) => {
                    close_and_settle(ring, reply.as_mut()).await;
                    return Err(Trouble::ClientLeft);
                }
                () = at(first_byte_deadline) => {
                    close_and_settle(ring, reply.as_mut()).await;
                    let message = "no answer in time (timeouts.first_byte)".to_owned();
                    return Err(Trouble::Upstream { error: OwnError::GatewayTimeout, message, began: true });
                }
            }
        }
    }

    fn request_head(&self) -> Vec<u8> {
        let host_default = self.backend.config.addr.to_string();
        let forward = RequestForward {
            body: self.request.kind,
            upgrade: upgrade_of(self.request),
            host_default: &host_default,
        };
        let mut head = Vec::with_capacity(1024);
        write_request_head(&self.request.head, forward, &mut head);
        head
    }

    /// Reads up to the final response's head; interim ones are passed on.
    async fn read_reply(
        &self,
        conn: &mut Conn,
        ring: &RingStream,
        link: &Link,
    ) -> Result<(ResponseHead, BodyKind), Trouble> {
        let limits = &self.worker.shared.config.limits;
        let limits = HeadLimits {
            bytes_max: limits.head_bytes_max,
            fields_max: limits.head_fields_max,
        };
        let mut interim = 0;
        let mut began = false;
        loop {
            let bad = |message: String| Trouble::Upstream {
                error: OwnError::BadGateway,
                message,
                began: true,
            };
            if !conn.read_ahead.is_empty() {
                let parsed = parse_response(&conn.read_ahead, limits)
                    .map_err(|error| bad(format!("bad answer: {error}")))?;
                if let Some((head, length)) = parsed {
                    let _ = conn.read_ahead.split_to(length);
                    let body = response_body(&head, self.request.head.method())
                        .map_err(|error| bad(format!("bad answer: {error}")))?;
                    if head.status == 101 && upgrade_of(self.request).is_none() {
                        return Err(bad("it switched protocols unasked".to_owned()));
                    }
                    if head.status >= 200 || head.status == 101 {
                        return Ok((head, body));
                    }
                    interim += 1;
                    if interim > INTERIM_MAX {
                        return Err(bad(format!("more than {INTERIM_MAX} interim answers")));
                    }
                    self.pass_interim(&head, link).await?;
                    continue;
                }
            }
            match ring.read(conn, REPLY_READ_BYTES, None).await {
                Ok(0) => {
                    let message = "it closed the connection before a whole answer's head".to_owned();
                    return Err(Trouble::Upstream {
                        error: OwnError::BadGateway,
                        message,
                        began,
                    });
                }
                Ok(count) => {
                    began = true;
                    self.backend.note_bytes(count as u64, now());
                }
                Err(error) => {
                    let message = format!("the connection broke before a whole answer's head: {error}");
                    return Err(Trouble::Upstream {
                        error: OwnError::BadGateway,
                        message,
                        began,
                    });
                }
            }
        }
    }

    /// 100 is the router's own to send; an HTTP/1.0 client knows no interim answers.
    async fn pass_interim(&self, head: &ResponseHead, link: &Link) -> Result<(), Trouble> {
        if head.status == 100 || self.request.head.version == Version::Http10 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let forward = ResponseForward {
            body: BodyKind::None,
            close: false,
            upgrade: false,
        };
        write_response_head(head, forward, &mut bytes);
        link.write(bytes).await.map_err(|_| Trouble::ClientLeft)
    }
}

/// The `Upgrade` that passes: any protocol but HTTP/2, which would open an unwatched tunnel.
fn upgrade_of(request: &Request) -> Option<&[u8]> {
    let fields = &request.head.fields;
    if request.head.version != Version::Http11 || !fields.has_member("connection", "upgrade") {
        return None;
    }
    let upgrade = fields.first("upgrade")?;
    let http2 = fields
        .members("upgrade")
        .any(|protocol| protocol.to_ascii_lowercase().starts_with(b"h2"));
    (!http2).then_some(upgrade)
}

struct Answered {
    head: ResponseHead,
    body: BodyKind,
    uploaded: bool,
}

enum Trouble {
    ClientLeft,
    Refused(OwnAnswer),
    Upstream {
        error: OwnError,
        message: String,
        began: bool,
    },
}

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Trouble {
        match error {
            BodyError::ClientLeft => Trouble::ClientLeft,
            BodyError::Refused(answer) => Trouble::Refused(answer),
        }
    }
}

/// Closes the engine's connection at once and waits for the read under way to end.
async fn close_and_settle<T>(ring: &RingStream, reply: Pin<&mut impl Future<Output = T>>) {
    net::shutdown(ring, Shutdown::Both);
    let _ = reply.await;
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
