//! One bounded GET on a connection of its own.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A GET and its bounds.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) addr: SocketAddr,
    pub(super) path: String,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    /// A longer body is an error where it is wanted, and cut where not.
    pub(super) body_bytes_max: usize,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchError {
    Refused,
    TimedOut,
    Broken,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    /// `None` where it broke off or was over the bound.
    pub(super) body: Option<Bytes>,
}

impl Fetch {
    pub(super) async fn get(&self) -> Result<Page, FetchError> {
        let bounded = timeout(self.timeout, self.exchange()).await;
        bounded.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn exchange(&self) -> Result<Page, FetchError> {
        let connecting = timeout(self.connect_timeout, TcpStream::connect(self.addr)).await;
        let stream = match connecting {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unconnected(error.kind())),
            Err(_) => return Err(FetchError::TimedOut),
        };
        let request = Request::get(self.path.as_str())
            .header("host", self.addr.to_string())
            .header("user-agent", "warmpath")
            .header("accept", "*/*")
            .header("connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|_| FetchError::Broken)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|_| FetchError::Broken)?;
        let exchange = async move {
            let answer = sender
                .send_request(request)
                .await
                .map_err(|_| FetchError::Broken)?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), self.body_bytes_max)
                .collect()
                .await;
            let body = body.ok().map(http_body_util::Collected::to_bytes);
            Ok(Page { status, body })
        };
        let (mut exchange, mut connection, mut open) = (pin!(exchange), pin!(connection), true);
        loop {
            tokio::select! {
                page = &mut exchange => return page,
                _ = &mut connection, if open => open = false,
            }
        }
    }
}

fn unconnected(kind: ErrorKind) -> FetchError {
    match kind {
        ErrorKind::ConnectionRefused => FetchError::Refused,
        ErrorKind::TimedOut => FetchError::TimedOut,
        _ => FetchError::Broken,
    }
}
