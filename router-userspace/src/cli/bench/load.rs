//! Sends the requests: at a constant rate whatever comes back (open loop), or so many at a time (closed loop).
//!
//! In an open loop every time is measured from the moment at which the request should have been sent, so that a
//! stall counts against each request that it delayed and not only against the one that met it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::{Connection, Failure};
use super::events::{EventReader, Usage};
use super::figures::Figures;
use super::target::Target;
use super::workload::Workload;

/// Requests of an open loop that are under way at once; beyond it sending waits, and the wait counts.
const IN_FLIGHT_MAX: usize = 4096;

/// How requests are paced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// So many a second.
    Rate(f64),
    /// So many at a time.
    Concurrency(usize),
}

/// When no more requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// After this time.
    Duration(Duration),
    /// After so many.
    Requests(u64),
}

/// One run.
#[derive(Debug)]
pub(super) struct Load {
    target: Target,
    workload: Workload,
    limit: Limit,
    timeout: Duration,
    /// What it measured so far.
    pub(super) figures: RefCell<Figures>,
    idle: RefCell<Vec<Connection>>,
    next: Cell<u64>,
    begun: Instant,
    last_end: Cell<Instant>,
}

/// An answer in full.
#[derive(Debug)]
struct Answered {
    ttft: Option<Duration>,
    usage: Option<Usage>,
    events: u64,
}

impl Load {
    /// A run that begins now.
    pub(super) fn new(target: Target, workload: Workload, limit: Limit, timeout: Duration) -> Rc<Load> {
        let begun = Instant::now();
        Rc::new(Load {
            target,
            workload,
            limit,
            timeout,
            figures: RefCell::new(Figures::new()),
            idle: RefCell::default(),
            next: Cell::new(0),
            begun,
            last_end: Cell::new(begun),
        })
    }

    /// How far the run is, 0 to 1.
    pub(super) fn share_done(&self) -> f64 {
        match self.limit {
            Limit::Duration(duration) => self.begun.elapsed().as_secs_f64() / duration.as_secs_f64(),
            Limit::Requests(requests) => {
                let figures = self.figures.borrow();
                (figures.succeeded + figures.errors()) as f64 / requests.max(1) as f64
            }
        }
    }

    /// From the beginning to the last answer's end.
    pub(super) fn elapsed(&self) -> Duration {
        self.last_end.get() - self.begun
    }

    /// Counts a stop on demand as the end.
    pub(super) fn end_now(&self) {
        self.last_end.set(Instant::now());
    }

    /// Runs to the end; dropping the future stops everything.
    pub(super) async fn run(self: Rc<Self>, pace: Pace) {
        match pace {
            Pace::Rate(rate) => self.open_loop(rate).await,
            Pace::Concurrency(concurrency) => self.closed_loop(concurrency).await,
        }
    }

    /// The number of the next request, unless the run is over at `at`.
    fn next_number(&self, at: Instant) -> Option<u64> {
        let number = self.next.get();
        let more = match self.limit {
            Limit::Duration(duration) => at < self.begun + duration,
            Limit::Requests(requests) => number < requests,
        };
        more.then(|| self.next.replace(number + 1))
    }

    async fn open_loop(self: Rc<Self>, rate: f64) {
        let mut tasks = JoinSet::new();
        let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let mut intended = self.begun;
        while let Some(number) = self.next_number(intended) {
            sleep_until(intended).await;
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            tasks.spawn_local(Rc::clone(&self).request_in(place, number, intended));
            while tasks.try_join_next().is_some() {}
            intended = self.begun + Duration::from_secs_f64((number + 1) as f64 / rate);
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn closed_loop(self: Rc<Self>, concurrency: usize) {
        let mut tasks = JoinSet::new();
        for _ in 0..concurrency {
            let load = Rc::clone(&self);
            tasks.spawn_local(async move {
                while let Some(number) = load.next_number(Instant::now()) {
                    load.request(number, Instant::now()).await;
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn request_in(self: Rc<Self>, _place: OwnedSemaphorePermit, number: u64, intended: Instant) {
        self.request(number, intended).await;
    }

    /// Sends one request and counts what came of it.
    async fn request(&self, number: u64, intended: Instant) {
        self.figures.borrow_mut().started += 1;
        let answered = timeout(self.timeout, self.attempt(number, intended)).await;
        let end = Instant::now();
        self.last_end.set(end);
        let mut figures = self.figures.borrow_mut();
        match answered.unwrap_or(Err(Failure::Timeout)) {
            Ok(answered) => {
                if let Some(ttft) = answered.ttft {
                    figures.ttft.add(ttft);
                }
                figures.success(end - intended, answered.usage, answered.events);
            }
            Err(failure) => figures.failure(failure),
        }
    }

    async fn attempt(&self, number: u64, intended: Instant) -> Result<Answered, Failure> {
        let request = self.wire(number);
        let mut connection = self.connection().await?;
        let was_used = connection.used;
        match self.exchange(&mut connection, &request, intended).await {
            // The server closed the kept connection while the request was on its way: not an error of either.
            Err(Failure::Reset) if was_used => {
                let mut connection = self.open().await?;
                let answered = self.exchange(&mut connection, &request, intended).await?;
                self.keep(connection, answered)
            }
            answered => self.keep(connection, answered?),
        }
    }

    fn keep(
        &self,
        connection: Connection,
        (answered, reusable): (Answered, bool),
    ) -> Result<Answered, Failure> {
        if reusable {
            self.idle.borrow_mut().push(connection);
        }
        Ok(answered)
    }

    async fn exchange(
        &self,
        connection: &mut Connection,
        request: &[u8],
        intended: Instant,
    ) -> Result<(Answered, bool), Failure> {
        let shape = self.workload.shape();
        let mut reader = EventReader::new(shape.api);
        let mut whole = Vec::new();
        let mut ttft = None;
        let mut last = intended;
        let reusable = connection
            .exchange(request, |bytes| {
                if !shape.stream {
                    whole.extend_from_slice(bytes);
                    return;
                }
                let tokens = reader.feed(bytes);
                if tokens > 0 {
                    let at = Instant::now();
                    self.count_tokens(tokens, at, intended, &mut last, &mut ttft);
                }
            })
            .await?;
        if !shape.stream {
            reader.whole(&whole);
        }
        if reader.error {
            return Err(Failure::InStream);
        }
        if !reader.ended {
            return Err(Failure::Cut);
        }
        let answered = Answered {
            ttft,
            usage: reader.usage,
            events: reader.tokens,
        };
        Ok((answered, reusable))
    }

    /// Tokens that came in one read came at one time: the first ends a gap, the others had none.
    fn count_tokens(
        &self,
        tokens: u64,
        at: Instant,
        intended: Instant,
        last: &mut Instant,
        ttft: &mut Option<Duration>,
    ) {
        let mut figures = self.figures.borrow_mut();
        let mut gaps = tokens;
        if ttft.is_none() {
            *ttft = Some(at - intended);
            *last = at;
            gaps -= 1;
        }
        for _ in 0..gaps {
            figures.itl.add(at - *last);
            *last = at;
        }
    }

    /// The bytes of request `number`.
    fn wire(&self, number: u64) -> Vec<u8> {
        let body = self.workload.body(number);
        format!(
            "POST {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: warmpath-bench\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.target.base_path,
            self.workload.path(),
            self.target.authority,
            body.len(),
        )
        .into_bytes()
    }

    /// A kept connection, or a new one.
    async fn connection(&self) -> Result<Connection, Failure> {
        loop {
            let kept = self.idle.borrow_mut().pop();
            match kept {
                Some(connection) if connection.stale() => {}
                Some(connection) => return Ok(connection),
                None => return self.open().await,
            }
        }
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let connection = Connection::open(self.target.addr).await?;
        self.figures.borrow_mut().connections += 1;
        Ok(connection)
    }
}
