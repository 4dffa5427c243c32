//! Which request comes next.

use std::time::Duration;

use super::arrivals::arrivals;
use super::setup::{Load, SATURATING_OUTSTANDING, Setup};
use super::trace::Trace;
use crate::types::Micros;

/// Hands out the requests of a trace under one load.
pub(super) struct Source<'a> {
    trace: &'a Trace,
    /// Each request's time; empty in closed loop.
    times: Vec<Micros>,
    /// The next request, or the next session, that nobody has begun.
    next: usize,
    pauses: bool,
    /// Whether a session ends with the request.
    last_turn: Vec<bool>,
}

impl<'a> Source<'a> {
    /// The source and the requests that come first, with their times.
    pub(super) fn new(trace: &'a Trace, setup: &Setup) -> (Source<'a>, Vec<(Micros, usize)>) {
        let rate = match setup.load {
            Load::Rate(rate) => Some(rate),
            _ => None,
        };
        let open = matches!(setup.load, Load::AsRecorded | Load::Rate(_));
        let mut last_turn = vec![trace.sessions.is_empty(); trace.requests.len()];
        for session in &trace.sessions {
            last_turn[session.end - 1] = true;
        }
        let mut source = Source {
            trace,
            times: if open {
                arrivals(trace, rate, setup.seed)
            } else {
                Vec::new()
            },
            next: 0,
            pauses: matches!(setup.load, Load::Sessions(_)),
            last_turn,
        };
        let live = match setup.load {
            Load::AsRecorded | Load::Rate(_) => 1,
            Load::Sessions(count) => count * setup.backends,
            Load::Saturate => SATURATING_OUTSTANDING * setup.backends,
        };
        let first = (0..live).map_while(|_| source.begin(Micros(0))).collect();
        (source, first)
    }

    /// After `request` arrived: the next one of an open loop.
    pub(super) fn after_arrival(&mut self) -> Option<(Micros, usize)> {
        if self.times.is_empty() {
            return None;
        }
        self.begin(Micros(0))
    }

    /// After `request` ended: what its end brings about in a closed loop.
    pub(super) fn after_end(&mut self, request: usize, now: Micros) -> Option<(Micros, usize)> {
        if !self.times.is_empty() {
            return None;
        }
        if self.last_turn[request] {
            return self.begin(now);
        }
        let next = request + 1;
        let think = if self.pauses {
            self.trace.requests[next].think_ms
        } else {
            0
        };
        Some((now + Duration::from_millis(think), next))
    }

    /// The next request or session of all.
    fn begin(&mut self, now: Micros) -> Option<(Micros, usize)> {
        let request = if self.trace.sessions.is_empty() {
            Some(self.next).filter(|&next| next < self.trace.requests.len())
        } else {
            self.trace.sessions.get(self.next).map(|session| session.start)
        };
        self.next += 1;
        request.map(|request| (self.times.get(request).copied().unwrap_or(now), request))
    }
}
