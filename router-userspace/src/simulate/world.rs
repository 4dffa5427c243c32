//! The event loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use super::contender::Contender;
use super::record::{Figures, Record};
use super::router::{BYTES_PER_TOKEN, Router};
use super::setup::{Fault, Setup, SetupError};
use super::source::Source;
use super::trace::Trace;
use crate::engine::{BlockCache, Engine, EngineConfig, EngineEvent, EngineRequest, RequestId};
use crate::policy::RequestView;
use crate::prefix::PromptKey;
use crate::types::{BackendId, Micros, Rng};

/// Ended requests between two reports of progress.
const PROGRESS_EVERY: usize = 64;

/// What happens at a point in time; what comes first in this list comes first among equals. So requests that
/// arrive as a step begins share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { request: usize },
    Fault { index: usize },
    News { router: usize, flight: u64, what: News },
    Step { backend: usize },
}

/// What a router hears later than it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Dispatched { request: usize, backend: usize },
    FirstToken,
    Ended,
}

/// A request at an engine.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    request: usize,
    /// Its number among all arrivals.
    arrival: usize,
    came: Micros,
    router: usize,
    answered: bool,
}

struct World<'a> {
    trace: &'a Trace,
    setup: &'a Setup,
    engines: Vec<Engine>,
    /// The one cache of all engines, for the pooled bound.
    pool: Option<BlockCache>,
    /// When each engine's next step is on the agenda.
    due: Vec<Option<Micros>>,
    /// Ordered, so that a restart's requests are sent again in one order.
    flights: Vec<BTreeMap<RequestId, Flight>>,
    flight_count: u64,
    routers: Vec<Router>,
    agenda: BinaryHeap<Reverse<(Micros, Event)>>,
    source: Source<'a>,
    record: Record,
    lots: Rng,
    affinity_block: usize,
}

/// Runs `trace` against `contender`; `progress` is told now and then how many requests have ended.
///
/// # Errors
/// [`SetupError`] where the setup doesn't fit the trace.
pub fn run(
    trace: &Trace,
    contender: Contender,
    setup: &Setup,
    progress: &mut dyn FnMut(usize),
) -> Result<Figures, SetupError> {
    setup.check(trace)?;
    let mut world = World::new(trace, contender, setup);
    let mut reported = 0;
    while let Some(Reverse((now, event))) = world.agenda.pop() {
        world.happen(now, event);
        if world.record.done() >= reported + PROGRESS_EVERY {
            reported = world.record.done();
            progress(reported);
        }
    }
    progress(world.record.done());
    Ok(world.figures())
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, contender: Contender, setup: &'a Setup) -> World<'a> {
        let mut rng = Rng::new(setup.seed);
        let (source, first) = Source::new(trace, setup);
        let count = setup.backends;
        let pooled = contender == Contender::Pooled;
        let pool_blocks = EngineConfig::new(setup.capacity_tokens, trace.block_tokens).capacity_blocks;
        let router = |_| Router::new(contender, setup, trace.block_tokens, rng.next_u64());
        let mut world = World {
            trace,
            setup,
            routers: (0..setup.routers).map(router).collect(),
            engines: Vec::new(),
            pool: pooled.then(|| BlockCache::new(pool_blocks * count)),
            due: vec![None; count],
            flights: vec![BTreeMap::new(); count],
            flight_count: 0,
            agenda: BinaryHeap::new(),
            source,
            record: Record::new(count),
            lots: Rng::new(setup.seed ^ 0x1075),
            affinity_block: trace.common_blocks(),
        };
        world.engines = (0..count).map(|backend| world.engine(backend)).collect();
        for (at, request) in first {
            world.plan(at, Event::Arrive { request });
        }
        for (index, fault) in setup.faults.iter().enumerate() {
            if let Fault::Slow { at, .. } | Fault::Restart { at, .. } = *fault {
                world.plan(Micros(0) + at, Event::Fault { index });
            }
        }
        world
    }

    fn engine(&self, backend: usize) -> Engine {
        let mut config = EngineConfig::new(self.setup.capacity_tokens, self.trace.block_tokens)
            .with_speed(self.setup.speed(backend));
        config.attention_tokens = self.setup.attention_tokens;
        config.waiting_max = usize::MAX;
        Engine::new(config)
    }

    fn plan(&mut self, at: Micros, event: Event) {
        self.agenda.push(Reverse((at, event)));
    }

    fn happen(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrive { request } => {
                if let Some((at, request)) = self.source.after_arrival() {
                    self.plan(at, Event::Arrive { request });
                }
                let flight = Flight {
                    number: 0,
                    request,
                    arrival: self.record.arrival(),
                    came: now,
                    router: self.lots.below(self.routers.len()),
                    answered: false,
                };
                self.send(now, flight);
            }
            Event::Fault { index } => self.fault(now, index),
            Event::News { router, flight, what } => self.hear(now, router, flight, what),
            Event::Step { backend } => self.step(now, backend),
        }
    }

    fn key(&self, request: usize) -> PromptKey {
        let request = &self.trace.requests[request];
        PromptKey {
            // The ring takes keys for hashes, which a trace's ids aren't; with the seed ties fall otherwise.
            affinity: request
                .block(self.affinity_block)
                .map(|id| Rng::new(id ^ self.setup.seed << 32).next_u64()),
            blocks: request.blocks(),
            text_bytes: u64::from(request.input_tokens.max(1)) * u64::from(BYTES_PER_TOKEN),
            ..PromptKey::default()
        }
    }

    /// Routes a request and hands it to its engine.
    fn send(&mut self, now: Micros, mut flight: Flight) {
        let key = self.key(flight.request);
        let view = view(&key, now);
        let traced = &self.trace.requests[flight.request];
        let tokens = traced.input_tokens.max(1);
        let engines = &self.engines;
        let pool = self.pool.as_ref();
        let truth = |at: usize| {
            let cache = pool.unwrap_or_else(|| engines[at].cache());
            let matched = cache.matched(&key.blocks) as u64 * u64::from(self.trace.block_tokens);
            matched.min(u64::from(tokens - 1)) as u32
        };
        let router = &mut self.routers[flight.router];
        let began = Instant::now();
        let picked = router.pick(&view, tokens, &truth);
        self.record.decision(began.elapsed());
        let Ok(backend) = picked else {
            self.record.failed += 1;
            self.end(now, flight.request);
            return;
        };
        flight.number = self.flight_count;
        self.flight_count += 1;
        router.dispatched(flight.number, &view, backend, tokens, &truth);
        let backend = backend.0 as usize;
        self.tell_peers(
            now,
            &flight,
            News::Dispatched {
                request: flight.request,
                backend,
            },
        );
        let submitted = self.at_engine(backend, |engine| {
            engine.submit(
                now,
                EngineRequest {
                    blocks: key.blocks.into(),
                    prompt_tokens: tokens,
                    output_tokens: traced.output_tokens,
                },
            )
        });
        match submitted {
            Ok(id) => {
                self.flights[backend].insert(id, flight);
                self.schedule(backend);
            }
            Err(_) => {
                self.record.failed += 1;
                self.leave(now, &flight);
            }
        }
    }

    /// Works with an engine while its cache is the pool, if there is one.
    fn at_engine<T>(&mut self, backend: usize, work: impl FnOnce(&mut Engine) -> T) -> T {
        let engine = &mut self.engines[backend];
        let Some(pool) = &mut self.pool else {
            return work(engine);
        };
        engine.exchange_cache(pool);
        let result = work(engine);
        engine.exchange_cache(pool);
        result
    }

    fn schedule(&mut self, backend: usize) {
        let next = self.engines[backend].next_step_at();
        if next != self.due[backend] {
            self.due[backend] = next;
            if let Some(at) = next {
                self.plan(at, Event::Step { backend });
            }
        }
    }

    fn step(&mut self, now: Micros, backend: usize) {
        if self.due[backend] != Some(now) {
            return;
        }
        self.due[backend] = None;
        let mut events = Vec::new();
        self.at_engine(backend, |engine| engine.step(now, &mut events));
        if let Some(ends) = self.engines[backend].next_step_at() {
            self.record.busy_us[backend] += ends.0 - now.0;
        }
        self.schedule(backend);
        for event in events {
            match event {
                EngineEvent::Token { .. } => {}
                EngineEvent::FirstToken { id, .. } => {
                    if let Some(flight) = self.flights[backend].get_mut(&id) {
                        flight.answered = true;
                        let flight = *flight;
                        self.record.first_token(flight.arrival, flight.came, now);
                        self.tell(now, &flight, News::FirstToken);
                    }
                }
                EngineEvent::Finished { id } => {
                    if let Some(flight) = self.flights[backend].remove(&id) {
                        self.record.completed(now);
                        self.leave(now, &flight);
                    }
                }
            }
        }
    }

    /// A request is over, well or not.
    fn leave(&mut self, now: Micros, flight: &Flight) {
        self.tell(now, flight, News::Ended);
        self.end(now, flight.request);
    }

    fn end(&mut self, now: Micros, request: usize) {
        if let Some((at, request)) = self.source.after_end(request, now) {
            self.plan(at, Event::Arrive { request });
        }
    }

    /// Tells a request's own router, then the others.
    fn tell(&mut self, now: Micros, flight: &Flight, what: News) {
        let lag = self.setup.event_lag();
        if lag.is_zero() {
            self.hear(now, flight.router, flight.number, what);
        } else {
            let (router, flight) = (flight.router, flight.number);
            self.plan(now + lag, Event::News { router, flight, what });
        }
        self.tell_peers(now + lag, flight, what);
    }

    fn tell_peers(&mut self, now: Micros, flight: &Flight, what: News) {
        let Some(lag) = self.setup.peer_lag else { return };
        for router in (0..self.routers.len()).filter(|&router| router != flight.router) {
            let flight = flight.number;
            self.plan(now + lag, Event::News { router, flight, what });
        }
    }

    fn hear(&mut self, now: Micros, router: usize, flight: u64, what: News) {
        match what {
            News::FirstToken => self.routers[router].first_token(flight, now),
            News::Ended => self.routers[router].ended(flight),
            News::Dispatched { request, backend } => {
                let key = self.key(request);
                let tokens = self.trace.requests[request].input_tokens.max(1);
                let backend = BackendId(backend as u32);
                // A bound that is told late knows the load and not the caches.
                self.routers[router].dispatched(flight, &view(&key, now), backend, tokens, &|_| 0);
            }
        }
    }

    fn fault(&mut self, now: Micros, index: usize) {
        match self.setup.faults[index] {
            Fault::Slow { backend, factor, .. } => self.engines[backend].set_slowdown(factor),
            Fault::Restart { backend, .. } => self.restart(now, backend),
            Fault::Capacity(_) | Fault::Speed(_) | Fault::EventLag(_) => {}
        }
    }

    fn restart(&mut self, now: Micros, backend: usize) {
        let lost = std::mem::take(&mut self.flights[backend]);
        for &id in lost.keys() {
            self.at_engine(backend, |engine| engine.abort(id));
        }
        self.count(backend);
        // The pool outlives the engine: it's a bound, and bounds forget nothing.
        self.engines[backend] = self.engine(backend);
        self.due[backend] = None;
        for router in &mut self.routers {
            router.reset(BackendId(backend as u32));
        }
        for flight in lost.into_values() {
            if flight.answered {
                self.record.failed += 1;
                self.leave(now, &flight);
            } else {
                self.tell(now, &flight, News::Ended);
                self.send(now, flight);
            }
        }
    }

    fn count(&mut self, backend: usize) {
        let stats = self.engines[backend].stats();
        self.record.prompt_tokens += stats.prompt_tokens_total;
        self.record.cached_tokens += stats.cached_tokens_total;
    }

    fn figures(mut self) -> Figures {
        for backend in 0..self.engines.len() {
            self.count(backend);
        }
        self.record.figures()
    }
}

fn view(key: &PromptKey, now: Micros) -> RequestView<'_> {
    RequestView {
        key: Some(key),
        session: None,
        tried: &[],
        now,
    }
}
