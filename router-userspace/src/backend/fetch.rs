//! Bounded GETs of the control thread: one on a connection of its own, or many on a kept one.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes of an engine's metrics page; a larger one counts as none.
pub(super) const METRICS_BODY_BYTES_MAX: usize = 4 << 20;

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

/// Whether the engine should close behind its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Close,
    Keep,
}

impl Fetch {
    /// Asks on a connection of its own.
    pub(super) async fn get(&self) -> Result<Page, FetchError> {
        let exchange = async {
            let mut link = self.connect().await?;
            self.exchange(&mut link, After::Close).await
        };
        let bounded = timeout(self.timeout, exchange).await;
        bounded.unwrap_or(Err(FetchError::TimedOut))
    }

    /// Only opens a connection.
    pub(super) async fn reach(&self) -> Result<TcpStream, FetchError> {
        match timeout(self.connect_timeout, TcpStream::connect(self.addr)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(unconnected(error.kind())),
            Err(_) => Err(FetchError::TimedOut),
        }
    }

    async fn connect(&self) -> Result<Link, FetchError> {
        let stream = self.reach().await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| FetchError::Broken)?;
        let connection = Box::pin(async move {
            // Its error shows in the exchange that it breaks.
            let _ = connection.await;
        });
        Ok(Link {
            sender,
            connection,
            open: true,
        })
    }

    async fn exchange(&self, link: &mut Link, after: After) -> Result<Page, FetchError> {
        let mut request = Request::get(self.path.as_str())
            .header("host", self.addr.to_string())
            .header("user-agent", "warmpath")
            .header("accept", "*/*");
        if after == After::Close {
            request = request.header("connection", "close");
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| FetchError::Broken)?;
        let Link {
            sender,
            connection,
            open,
        } = link;
        let exchange = async {
            sender.ready().await.map_err(|_| FetchError::Broken)?;
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
        let mut exchange = pin!(exchange);
        loop {
            tokio::select! {
                page = &mut exchange => return page,
                () = &mut *connection, if *open => *open = false,
            }
        }
    }
}

/// Asks the same engine again and again, on one connection while it lasts.
pub(super) struct KeptFetch {
    fetch: Fetch,
    link: Option<Link>,
}

impl KeptFetch {
    pub(super) fn new(fetch: Fetch) -> KeptFetch {
        KeptFetch { fetch, link: None }
    }

    /// Asks for `path`. A kept connection that the engine has closed meanwhile is replaced.
    pub(super) async fn get(&mut self, path: &str) -> Result<Page, FetchError> {
        path.clone_into(&mut self.fetch.path);
        let kept = self.link.take();
        let fetch = &self.fetch;
        let exchange = async {
            if let Some(mut link) = kept
                && let Ok(page) = fetch.exchange(&mut link, After::Keep).await
            {
                return Ok((page, link));
            }
            let mut link = fetch.connect().await?;
            let page = fetch.exchange(&mut link, After::Keep).await?;
            Ok((page, link))
        };
        let bounded = timeout(fetch.timeout, exchange).await;
        let (page, link) = bounded.unwrap_or(Err(FetchError::TimedOut))?;
        // Behind a body that wasn't read to its end the next answer has no begin.
        self.link = (page.body.is_some() && link.open).then_some(link);
        Ok(page)
    }
}

/// An open connection to an engine. It moves only inside an exchange.
struct Link {
    sender: SendRequest<Empty<Bytes>>,
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    open: bool,
}

fn unconnected(kind: ErrorKind) -> FetchError {
    match kind {
        ErrorKind::ConnectionRefused => FetchError::Refused,
        ErrorKind::TimedOut => FetchError::TimedOut,
        _ => FetchError::Broken,
    }
}
