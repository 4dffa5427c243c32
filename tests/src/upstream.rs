//! A scripted engine: a thread for each connection, which does what the test's script says.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::gate::wait_until;
use crate::message::{Framing, Head, Message};
use crate::wire::{Closed, Wire};

/// Targets that a router asks on its own account; they are answered here and never reach a script.
const PROBES: &[&str] = &["/health", "/metrics", "/v1/loads?include=core,queues"];
/// The one of them whose answer a test may set.
const METRICS: &str = "/metrics";
/// What they are answered with by default: a comment on a metrics page.
pub const PROBE_ANSWER: &[u8] = b"# a page of the test's engine\n";

/// How long a connection to an engine's own port may take.
const WAKE_TIME: Duration = Duration::from_secs(1);

/// A listening engine. Its drop panics where a script failed.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    /// Connections that have sent a request that isn't a probe.
    connections: AtomicUsize,
    /// Scripts that run now.
    running: AtomicUsize,
    heads: Mutex<Vec<Head>>,
    /// The metrics page; `None` = the answer of every probe.
    page: Mutex<Option<String>>,
    failures: Mutex<Vec<String>>,
}

impl Upstream {
    /// Starts an engine on a free port. `script` is run once for each connection that sends a request.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn start(script: impl Fn(&mut UpstreamConn) -> Result<()> + Send + Sync + 'static) -> Upstream {
        Upstream::start_on(Ipv4Addr::LOCALHOST.into(), script)
    }

    /// The same on an address of this host's.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn start_on(
        ip: IpAddr,
        script: impl Fn(&mut UpstreamConn) -> Result<()> + Send + Sync + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind((ip, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let (script, accepting) = (Arc::new(script), Arc::clone(&shared));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.stopping.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (script, shared) = (Arc::clone(&script), Arc::clone(&accepting));
                thread::spawn(move || serve(stream, &*script, &shared));
            }
        });
        Upstream { address, shared }
    }

    /// An engine that answers every request with `response`, on kept connections.
    ///
    /// # Panics
    /// Where no port can be had.
    #[must_use]
    pub fn answering(response: &'static [u8]) -> Upstream {
        Upstream::start(move |conn| {
            while conn.request()?.is_some() {
                conn.send(response)?;
            }
            Ok(())
        })
    }

    /// Sets its metrics page.
    pub fn set_metrics(&self, page: impl Into<String>) {
        *lock(&self.shared.page) = Some(page.into());
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far that have sent a request.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Scripts that run now: connections that have sent a request and that the engine hasn't closed.
    #[must_use]
    pub fn running_scripts(&self) -> usize {
        self.shared.running.load(Ordering::Acquire)
    }

    /// The heads of all requests so far, in the order of their arrival.
    #[must_use]
    pub fn heads(&self) -> Vec<Head> {
        lock(&self.shared.heads).clone()
    }

    /// The targets of all requests so far.
    #[must_use]
    pub fn targets(&self) -> Vec<String> {
        self.heads().iter().map(|head| head.target().to_owned()).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the accepting thread; where that fails it isn't accepting, or its host is cut off.
        let _ = TcpStream::connect_timeout(&self.address, WAKE_TIME);
        if thread::panicking() {
            for failure in &*lock(&self.shared.failures) {
                eprintln!("upstream script: {failure}");
            }
            return;
        }
        wait_until("the upstream's scripts end", || self.running_scripts() == 0);
        let failures = lock(&self.shared.failures);
        assert!(failures.is_empty(), "upstream scripts failed: {failures:#?}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: TcpStream,
    script: &(impl Fn(&mut UpstreamConn) -> Result<()> + ?Sized),
    shared: &Arc<Shared>,
) {
    let Ok(wire) = Wire::new(stream) else { return };
    let mut conn = UpstreamConn {
        wire,
        shared: Arc::clone(shared),
        index: 0,
        first: None,
    };
    // Waits without being counted as running: an idle connection isn't a script that hangs.
    let Ok(Some(first)) = conn.next_head() else { return };
    conn.first = Some(first);
    conn.index = shared.connections.fetch_add(1, Ordering::AcqRel);
    shared.running.fetch_add(1, Ordering::AcqRel);
    let failure = match catch_unwind(AssertUnwindSafe(|| script(&mut conn))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                .unwrap_or_else(|| "panicked".to_owned()),
        ),
    };
    if let Some(failure) = failure {
        lock(&shared.failures).push(format!("connection {}: {failure}", conn.index));
    }
    drop(conn);
    shared.running.fetch_sub(1, Ordering::AcqRel);
}

/// A script's end of a connection.
#[derive(Debug)]
pub struct UpstreamConn {
    wire: Wire,
    shared: Arc<Shared>,
    index: usize,
    first: Option<Head>,
}

impl UpstreamConn {
    /// Which connection of this engine it is, from 0, in the order of their first requests.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The next request, its body included. None where the router has closed, or stops.
    ///
    /// # Errors
    /// Where its framing is broken or its body is cut.
    pub fn request(&mut self) -> Result<Option<Message>> {
        let Some(head) = self.head()? else {
            return Ok(None);
        };
        let framing = head.request_framing()?;
        let body = self.wire.body(framing);
        if let Some(why) = body.cut {
            bail!("a cut request: {why}");
        }
        Ok(Some(Message {
            interim: Vec::new(),
            head,
            framing,
            body: body.bytes,
            trailers: body.trailers,
            cut: None,
        }))
    }

    /// The next request where there has to be one.
    ///
    /// # Errors
    /// As [`UpstreamConn::request`], and where the router closes instead.
    pub fn expect_request(&mut self) -> Result<Message> {
        self.request()?
            .context("the router closed instead of sending a request")
    }

    /// The next request's head, its body left unread. None where the router has closed, or stops.
    ///
    /// # Errors
    /// Where it is malformed.
    pub fn head(&mut self) -> Result<Option<Head>> {
        let head = match self.first.take() {
            Some(head) => Some(head),
            None => self.next_head()?,
        };
        if let Some(head) = &head {
            lock(&self.shared.heads).push(head.clone());
        }
        Ok(head)
    }

    /// The body of a request whose head was read by [`UpstreamConn::head`], as far as it comes.
    ///
    /// # Errors
    /// Where the head contradicts itself.
    pub fn body_as_far_as_it_comes(&mut self, head: &Head) -> Result<crate::message::Body> {
        Ok(self.wire.body(head.request_framing()?))
    }

    /// Reads exactly `len` bytes: the body, or what a tunnel carries.
    ///
    /// # Errors
    /// Where they don't come.
    pub fn exact(&mut self, len: usize) -> Result<Vec<u8>> {
        self.wire.exact(len)
    }

    /// Reads a chunk of the request's body.
    ///
    /// # Errors
    /// Where it doesn't come or is malformed.
    pub fn chunk(&mut self) -> Result<Vec<u8>> {
        self.wire.chunk()
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Where the router is gone or takes nothing.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.wire.send(bytes)
    }

    /// Sends a part of a response that may be refused, since the router may have closed already.
    pub fn send_if_open(&mut self, bytes: &[u8]) {
        // That the router closed is what such a test looks for at its client.
        let _ = self.wire.send(bytes);
    }

    /// Sends one chunk of a chunked body.
    ///
    /// # Errors
    /// Where the router is gone or takes nothing.
    pub fn send_chunk(&mut self, data: &[u8]) -> Result<()> {
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        self.send(&chunk)
    }

    /// Sends a response with this status, these field lines (each with its CRLF) and a body with its length.
    ///
    /// # Errors
    /// Where the router is gone or takes nothing.
    pub fn answer(&mut self, status: &str, fields: &str, body: &[u8]) -> Result<()> {
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes)
    }

    /// Sends until the router has taken nothing for `pause`; gives the bytes sent.
    ///
    /// # Errors
    /// Where the router is gone.
    pub fn send_until_blocked(&mut self, bytes: &[u8], pause: Duration) -> Result<usize> {
        self.wire.send_until_blocked(bytes, pause)
    }

    /// Waits for the router to close, dropping what still comes.
    ///
    /// # Errors
    /// Where it doesn't.
    pub fn closed(&mut self) -> Result<Closed> {
        self.wire.closed()
    }

    /// Ends the sending direction with a FIN.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn finish_sending(&mut self) -> Result<()> {
        self.wire.finish_sending()
    }

    /// Makes the end of the script an RST instead of a FIN.
    ///
    /// # Errors
    /// Where the option can't be set.
    pub fn reset_at_end(&mut self) -> Result<()> {
        socket2::SockRef::from(self.wire.stream())
            .set_linger(Some(Duration::ZERO))
            .context("linger")
    }

    /// The next head that isn't a probe's. A connection that ends between requests, in whatever way, has
    /// just ended: a router may be killed at the end of a test.
    fn next_head(&mut self) -> Result<Option<Head>> {
        loop {
            let head = match self.wire.head() {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(None),
                Err(_) if self.wire.read_ahead().is_empty() => return Ok(None),
                Err(error) => return Err(error),
            };
            if !PROBES.contains(&head.target()) {
                return Ok(Some(head));
            }
            if head.request_framing()? != Framing::None {
                bail!("a probe with a body");
            }
            let set = lock(&self.shared.page)
                .clone()
                .filter(|_| head.target() == METRICS);
            let page = set.as_ref().map_or(PROBE_ANSWER, |page| page.as_bytes());
            self.answer("200 OK", "Content-Type: text/plain\r\n", page)?;
        }
    }
}
