//! One simulated engine in real time: the model, the requests that listen to it, and the timer that steps it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::fault::{Fault, FaultKind, Faulty};
use super::histogram::SecondsHistogram;
use crate::engine::{Engine, EngineConfig, EngineEvent, EngineRequest, EngineStats, RequestId, SubmitError};
use crate::types::{Micros, now};

/// What a request's answer sees of its progress.
#[derive(Debug, Default)]
struct Progress {
    generated: Cell<u32>,
    cached_tokens: Cell<u32>,
    finished: Cell<bool>,
    lost: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    submitted_at: Cell<Micros>,
    last_token_at: Cell<Micros>,
}

impl Progress {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// One simulated engine.
#[derive(Debug)]
pub(super) struct Host {
    /// Its number among its siblings.
    pub(super) index: usize,
    config: EngineConfig,
    model: RefCell<Engine>,
    progress: RefCell<HashMap<RequestId, Rc<Progress>>>,
    fault: RefCell<Faulty>,
    changed: Notify,
    fault_changed: Notify,
    /// Seconds to the first token.
    pub(super) ttft_seconds: RefCell<SecondsHistogram>,
    /// Seconds between tokens.
    pub(super) itl_seconds: RefCell<SecondsHistogram>,
    /// Seconds from arrival to the last token.
    pub(super) e2e_seconds: RefCell<SecondsHistogram>,
}

impl Host {
    /// An idle engine.
    pub(super) fn new(index: usize, config: EngineConfig) -> Rc<Host> {
        Rc::new(Host {
            index,
            model: RefCell::new(Engine::new(config.clone())),
            config,
            progress: RefCell::default(),
            fault: RefCell::new(Faulty::new(index as u64)),
            changed: Notify::new(),
            fault_changed: Notify::new(),
            ttft_seconds: RefCell::default(),
            itl_seconds: RefCell::default(),
            e2e_seconds: RefCell::default(),
        })
    }

    /// Sizes and costs.
    pub(super) fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Running, waiting, the share of KV memory in use, and the counts.
    pub(super) fn load(&self) -> (usize, usize, f64, EngineStats) {
        let model = self.model.borrow();
        (
            model.running(),
            model.waiting(),
            model.kv_usage_ratio(),
            model.stats(),
        )
    }

    /// Queues a request; dropping the answer aborts it.
    pub(super) fn submit(self: &Rc<Self>, request: EngineRequest) -> Result<Generation, SubmitError> {
        let at = now();
        let id = self.model.borrow_mut().submit(at, request)?;
        let progress = Rc::new(Progress::default());
        progress.submitted_at.set(at);
        self.progress.borrow_mut().insert(id, Rc::clone(&progress));
        self.changed.notify_one();
        Ok(Generation {
            host: Rc::clone(self),
            id,
            progress,
        })
    }

    /// Sets the fault.
    pub(super) fn set_fault(&self, fault: Fault) {
        self.fault.borrow_mut().set(fault, now());
        self.changed.notify_one();
        self.fault_changed.notify_waiters();
    }

    /// The fault in force, to be asked what it does to a call.
    pub(super) fn with_fault<T>(&self, ask: impl FnOnce(&mut Faulty, Micros) -> T) -> T {
        ask(&mut self.fault.borrow_mut(), now())
    }

    /// Waits until being down begins (`true`) or ends (`false`).
    pub(super) async fn until_down(&self, down: bool) {
        loop {
            let changed = self.fault_changed.notified();
            let (is_down, until) =
                self.with_fault(|fault, at| (fault.kind(at) == FaultKind::Down, fault.until()));
            if is_down == down {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Loses everything, as a process that died.
    pub(super) fn lose_everything(&self) {
        *self.model.borrow_mut() = Engine::new(self.config.clone());
        for (_, progress) in self.progress.borrow_mut().drain() {
            progress.lost.set(true);
            progress.wake();
        }
    }

    /// Steps the model as its time comes, for ever.
    pub(super) async fn drive(self: Rc<Self>) {
        let mut events = Vec::new();
        loop {
            let (kind, until) = self.with_fault(|fault, at| (fault.kind(at), fault.until()));
            let next = match kind {
                FaultKind::Frozen | FaultKind::Down => until,
                _ => self.model.borrow().next_step_at(),
            };
            match next {
                Some(at) if at > now() => {
                    tokio::select! {
                        () = sleep_until(Some(at)) => {}
                        () = self.changed.notified() => continue,
                    }
                }
                Some(_) => {}
                None => {
                    self.changed.notified().await;
                    continue;
                }
            }
            let stopped =
                self.with_fault(|fault, at| matches!(fault.kind(at), FaultKind::Frozen | FaultKind::Down));
            if !stopped {
                self.step(&mut events);
                // A step that was overdue must not starve the connections.
                tokio::task::yield_now().await;
            }
        }
    }

    fn step(&self, events: &mut Vec<EngineEvent>) {
        let at = now();
        let slowdown = self.with_fault(Faulty::slowdown);
        {
            let mut model = self.model.borrow_mut();
            model.set_slowdown(slowdown);
            model.step(at, events);
        }
        for event in events.drain(..) {
            self.tell(event, at);
        }
    }

    fn tell(&self, event: EngineEvent, at: Micros) {
        let (EngineEvent::FirstToken { id, .. } | EngineEvent::Token { id } | EngineEvent::Finished { id }) =
            event;
        let mut listeners = self.progress.borrow_mut();
        let Some(progress) = listeners.get(&id) else {
            return;
        };
        match event {
            EngineEvent::FirstToken { cached_tokens, .. } => {
                progress.cached_tokens.set(cached_tokens);
                progress.generated.set(1);
                self.ttft_seconds
                    .borrow_mut()
                    .add(at.since(progress.submitted_at.get()));
                progress.last_token_at.set(at);
            }
            EngineEvent::Token { .. } => {
                progress.generated.set(progress.generated.get() + 1);
                self.itl_seconds
                    .borrow_mut()
                    .add(at.since(progress.last_token_at.get()));
                progress.last_token_at.set(at);
            }
            EngineEvent::Finished { .. } => {
                progress.finished.set(true);
                self.e2e_seconds
                    .borrow_mut()
                    .add(at.since(progress.submitted_at.get()));
            }
        }
        progress.wake();
        if progress.finished.get() {
            listeners.remove(&id);
        }
    }
}

/// Sleeps until a time of [`now`]; for ever without one.
async fn sleep_until(at: Option<Micros>) {
    match at {
        Some(at) => tokio::time::sleep_until(Instant::now() + at.since(now())).await,
        None => std::future::pending().await,
    }
}

/// A request inside an engine; dropping it aborts the request.
#[derive(Debug)]
pub(super) struct Generation {
    host: Rc<Host>,
    id: RequestId,
    progress: Rc<Progress>,
}

/// The engine was restarted under the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine died")]
pub(super) struct Lost;

impl Generation {
    /// Ready once more than `seen` tokens were generated; says how many.
    pub(super) fn poll_generated(&self, seen: u32, cx: &mut Context<'_>) -> Poll<Result<u32, Lost>> {
        if self.progress.lost.get() {
            return Poll::Ready(Err(Lost));
        }
        let generated = self.progress.generated.get();
        if generated > seen {
            return Poll::Ready(Ok(generated));
        }
        *self.progress.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Prompt tokens that came from the cache; known from the first token on.
    pub(super) fn cached_tokens(&self) -> u32 {
        self.progress.cached_tokens.get()
    }

    /// Waits until `tokens` were generated.
    pub(super) async fn generated(&self, tokens: u32) -> Result<(), Lost> {
        std::future::poll_fn(|cx| self.poll_generated(tokens - 1, cx))
            .await
            .map(drop)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.progress.finished.get() && !self.progress.lost.get() {
            self.host.progress.borrow_mut().remove(&self.id);
            self.host.model.borrow_mut().abort(self.id);
        }
    }
}

/// How long `/health` takes by the fault in force.
pub(super) fn health_delay(host: &Host) -> Duration {
    host.with_fault(Faulty::health_delay)
}
