//! A request's body: held for routing and for a retry up to a bound, then streamed.

use bytes::{Buf, Bytes, BytesMut};
use router_common::framing::{Framing, Piece};
use tokio::time::Instant;

use super::client::Link;
use super::memory::BodyLease;
use super::own::OwnAnswer;
use super::{Limits, Timeouts};
use crate::net::{Conn, IoFailure, RingStream};
use crate::proto::http1::BodyKind;
use crate::telemetry::OwnError;

/// Bytes asked for by one read of a body.
const READ_BYTES: usize = 64 << 10;
/// A held body up to this size is sent in one write with the head.
const JOIN_BYTES_MAX: usize = 4 << 10;

/// Why a body couldn't be had.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The client left before its end.
    ClientLeft,
    /// To be answered.
    Refused(OwnAnswer),
}

/// The body of one request.
#[derive(Debug)]
pub(super) struct Body {
    kind: BodyKind,
    framing: Framing,
    payload: BytesMut,
    trailers: BytesMut,
    received: u64,
    lease: BodyLease,
}

impl Body {
    pub(super) fn new(kind: BodyKind, lease: BodyLease) -> Body {
        let framing = match kind {
            BodyKind::Length(length) => Framing::length(length),
            BodyKind::Chunked => Framing::chunked(),
            BodyKind::None | BodyKind::Close => Framing::none(),
        };
        Body {
            kind,
            framing,
            payload: BytesMut::new(),
            trailers: BytesMut::new(),
            received: 0,
            lease,
        }
    }

    /// Whether all of it has been read from the client.
    pub(super) fn complete(&self) -> bool {
        self.framing.is_done()
    }

    /// Reads until the body is complete or `body_buffer_bytes` are held; `seen` gets each new part of it.
    pub(super) async fn hold(
        &mut self,
        conn: &mut Conn,
        link: &Link,
        limits: &Limits,
        timeouts: &Timeouts,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(), BodyError> {
        loop {
            self.take(conn, limits, &mut seen)?;
            let full = self.payload.len() >= limits.body_buffer_bytes;
            if self.complete() || full {
                return Ok(());
            }
            // Never more than may be held, so that one body can't wait for memory that it holds itself.
            let room = self.room().min(limits.body_buffer_bytes - self.payload.len());
            self.lease
                .cover(self.payload.len() + room, timeouts.body_buffer_wait)
                .await
                .map_err(|_| {
                    BodyError::Refused(OwnAnswer::new(
                        OwnError::Overloaded,
                        "the memory for request bodies (limits.body_buffers_total_bytes) is full; try again",
                    ))
                })?;
            read_more(conn, link, room, timeouts).await?;
        }
    }

    /// Bytes to ask for next: no more than the body has left, where that is known.
    fn room(&self) -> usize {
        match self.kind {
            BodyKind::Length(length) => usize::try_from(length - self.received)
                .unwrap_or(READ_BYTES)
                .min(READ_BYTES),
            _ => READ_BYTES,
        }
    }

    /// Takes what has been read ahead.
    fn take(
        &mut self,
        conn: &mut Conn,
        limits: &Limits,
        seen: &mut impl FnMut(&[u8]),
    ) -> Result<(), BodyError> {
        loop {
            match self.framing.next_piece(&conn.read_ahead) {
                Piece::Payload(count) => {
                    self.count(count, limits)?;
                    let part = conn.read_ahead.split_to(count);
                    seen(&part);
                    // Joins without copying where the parts lie side by side.
                    self.payload.unsplit(part);
                }
                Piece::Framing(count) => conn.read_ahead.advance(count),
                Piece::Trailers(count) => self.trailers.extend_from_slice(&conn.read_ahead.split_to(count)),
                Piece::More | Piece::Done => return Ok(()),
                Piece::Failed(error) => return Err(malformed(error.reason())),
            }
        }
    }

    fn count(&mut self, count: usize, limits: &Limits) -> Result<(), BodyError> {
        self.received += count as u64;
        if self.received > limits.body_bytes_max {
            return Err(BodyError::Refused(too_large(limits)));
        }
        Ok(())
    }

    /// Freezes what is held, so that each try can send it without copying.
    pub(super) fn freeze(self) -> (Held, Rest) {
        let chunked = self.kind == BodyKind::Chunked;
        let complete = self.framing.is_done();
        // Trailers that have come go out behind the last chunk, which the rest sends where there is one.
        let (ours, later) = if complete {
            (self.trailers, BytesMut::new())
        } else {
            (BytesMut::new(), self.trailers)
        };
        let held = Held {
            chunked,
            complete,
            payload: self.payload.freeze(),
            trailers: ours.freeze(),
            _lease: self.lease,
        };
        (
            held,
            Rest {
                chunked,
                framing: self.framing,
                received: self.received,
                trailers: later,
            },
        )
    }
}

/// The part of a body that is held.
#[derive(Debug)]
pub(super) struct Held {
    chunked: bool,
    complete: bool,
    payload: Bytes,
    trailers: Bytes,
    _lease: BodyLease,
}

impl Held {
    /// Whether it is the whole body, so that the request can be sent again.
    pub(super) fn complete(&self) -> bool {
        self.complete
    }

    /// Sends `head` and what is held.
    pub(super) async fn send(
        &self,
        mut head: Vec<u8>,
        upstream: &RingStream,
        timeouts: &Timeouts,
    ) -> Result<(), IoFailure> {
        let chunk = self.chunked && !self.payload.is_empty();
        if chunk {
            push_chunk_size(&mut head, self.payload.len());
        }
        let mut end = Vec::new();
        if chunk {
            end.extend_from_slice(b"\r\n");
        }
        if self.chunked && self.complete {
            push_last_chunk(&mut end, &self.trailers);
        }
        if self.payload.len() <= JOIN_BYTES_MAX {
            head.extend_from_slice(&self.payload);
            head.extend_from_slice(&end);
            return upstream.write_all(head, timeouts.upstream_write).await;
        }
        let parts = [head.into(), self.payload.clone(), end.into()];
        upstream.write_parts(parts, timeouts.upstream_write).await
    }
}

/// The part of a body that streams through.
#[derive(Debug)]
pub(super) struct Rest {
    chunked: bool,
    framing: Framing,
    received: u64,
    trailers: BytesMut,
}

/// Why streaming a body ended early.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The client's side: it left, or sent what can't be passed on.
    Client(BodyError),
    /// The engine took no more of it.
    Upstream(IoFailure),
}

impl Rest {
    /// Whether nothing is left to stream.
    pub(super) fn is_empty(&self) -> bool {
        self.framing.is_done()
    }

    /// Streams to the end of the body.
    pub(super) async fn stream(
        &mut self,
        conn: &mut Conn,
        link: &Link,
        upstream: &RingStream,
        limits: &Limits,
        timeouts: &Timeouts,
    ) -> Result<(), StreamError> {
        while !self.is_empty() {
            let part = self.encode(conn, limits).map_err(StreamError::Client)?;
            if !part.is_empty() {
                upstream
                    .write_all(part, timeouts.upstream_write)
                    .await
                    .map_err(StreamError::Upstream)?;
            }
            if !self.is_empty() && conn.read_ahead.is_empty() {
                read_more(conn, link, READ_BYTES, timeouts)
                    .await
                    .map_err(StreamError::Client)?;
            }
        }
        Ok(())
    }

    /// What has been read ahead, as it goes to the engine.
    fn encode(&mut self, conn: &mut Conn, limits: &Limits) -> Result<Vec<u8>, BodyError> {
        let mut out = Vec::with_capacity(conn.read_ahead.len() + 32);
        loop {
            match self.framing.next_piece(&conn.read_ahead) {
                Piece::Payload(count) => {
                    self.received += count as u64;
                    if self.received > limits.body_bytes_max {
                        return Err(BodyError::Refused(too_large(limits)));
                    }
                    if self.chunked {
                        push_chunk_size(&mut out, count);
                    }
                    out.extend_from_slice(&conn.read_ahead.split_to(count));
                    if self.chunked {
                        out.extend_from_slice(b"\r\n");
                    }
                }
                Piece::Framing(count) => conn.read_ahead.advance(count),
                Piece::Trailers(count) => self.trailers.extend_from_slice(&conn.read_ahead.split_to(count)),
                Piece::More => break,
                Piece::Done => {
                    if self.chunked {
                        push_last_chunk(&mut out, &self.trailers);
                    }
                    break;
                }
                Piece::Failed(error) => return Err(malformed(error.reason())),
            }
        }
        Ok(out)
    }
}

fn push_last_chunk(out: &mut Vec<u8>, trailers: &[u8]) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn too_large(limits: &Limits) -> OwnAnswer {
    OwnAnswer::new(
        OwnError::BodyTooLarge,
        format!(
            "the body is larger than {} bytes (limits.body_bytes_max)",
            limits.body_bytes_max
        ),
    )
}

fn malformed(reason: &str) -> BodyError {
    BodyError::Refused(OwnAnswer::new(
        OwnError::BadRequest,
        format!("malformed request body: {reason}"),
    ))
}

fn push_chunk_size(out: &mut Vec<u8>, size: usize) {
    out.extend_from_slice(format!("{size:x}\r\n").as_bytes());
}

async fn read_more(conn: &mut Conn, link: &Link, room: usize, timeouts: &Timeouts) -> Result<(), BodyError> {
    let deadline = Instant::now() + timeouts.body_idle;
    match link.ring.read(conn, room, Some(deadline)).await {
        Ok(0) | Err(IoFailure::Broken(_)) => Err(BodyError::ClientLeft),
        Ok(_) => Ok(()),
        Err(IoFailure::TimedOut) => Err(BodyError::Refused(OwnAnswer::new(
            OwnError::RequestTimeout,
            format!(
                "no more of the body came for {:?} (timeouts.body_idle)",
                timeouts.body_idle
            ),
        ))),
    }
}
