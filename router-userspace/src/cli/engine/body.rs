//! The bodies of answers: whole ones, and streams that follow a generation.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::host::{Generation, Lost};
use super::reply::Reply;

/// Why a stream ends without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// By the fault `cut`.
    #[error("cut on demand")]
    Cut,
    /// By the fault `down`.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Broken {
        match never {}
    }
}

/// One event a token.
#[derive(Debug)]
pub(super) struct TokenStream {
    reply: Reply,
    generation: Generation,
    cut_after: Option<u32>,
    sent: u32,
    ended: bool,
}

impl TokenStream {
    /// The stream of `generation`, cut after so many tokens.
    pub(super) fn new(reply: Reply, generation: Generation, cut_after: Option<u32>) -> TokenStream {
        TokenStream {
            reply,
            generation,
            cut_after,
            sent: 0,
            ended: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.cut_after.is_some_and(|chunks| self.sent >= chunks) {
            return Poll::Ready(Some(Err(Broken::Cut)));
        }
        let mut out = Vec::with_capacity(256);
        if self.sent == self.reply.output_tokens() {
            self.reply.end(self.generation.cached_tokens(), &mut out);
            self.ended = true;
        } else {
            ready!(self.generation.poll_generated(self.sent, cx))?;
            if self.sent == 0 {
                self.reply.begin(self.generation.cached_tokens(), &mut out);
            }
            self.reply.token(self.sent, &mut out);
            self.sent += 1;
        }
        Poll::Ready(Some(Ok(out.into())))
    }
}

/// Any answer's body.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// All at once.
    Whole(Option<Bytes>),
    /// Token by token.
    Stream(Box<TokenStream>),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            AnswerBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            AnswerBody::Stream(stream) => stream
                .poll(cx)
                .map(|bytes| bytes.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Whole(bytes) => bytes.is_none(),
            AnswerBody::Stream(stream) => stream.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            AnswerBody::Stream(_) => SizeHint::default(),
        }
    }
}
