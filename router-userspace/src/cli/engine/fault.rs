//! Faults on demand: what `POST /fault` and `--fault` take.

use std::time::Duration;

use serde::Deserialize;

use crate::types::{Micros, Rng};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FaultKind {
    /// Nothing.
    #[default]
    None,
    /// Nothing is produced, while `/health` answers.
    Frozen,
    /// `/health` answers after `delay_ms`.
    HealthSlow,
    /// A share `rate` of the generation calls is answered with `status`.
    Status,
    /// A share `rate` of the streams ends without its end after `after_chunks` tokens.
    Cut,
    /// Steps take `factor` times as long.
    Slow,
    /// The process seems to have died: connections are cut and refused, and the cache is lost.
    Down,
}

/// One fault with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    /// What goes wrong.
    pub(super) kind: FaultKind,
    /// Which engine; by default the one that is asked, or all for the flag.
    pub(super) engine: Option<usize>,
    /// For how long; without it until the next fault is set.
    for_ms: Option<u64>,
    /// How many times, for `status` and `cut`.
    count: Option<u64>,
    #[serde(default = "one")]
    rate: f64,
    #[serde(default = "unavailable")]
    status: u16,
    #[serde(default = "few_chunks")]
    after_chunks: u32,
    #[serde(default = "long_delay_ms")]
    delay_ms: u64,
    #[serde(default = "half_speed")]
    factor: f64,
}

fn one() -> f64 {
    1.0
}
fn unavailable() -> u16 {
    503
}
fn few_chunks() -> u32 {
    3
}
fn long_delay_ms() -> u64 {
    15_000
}
fn half_speed() -> f64 {
    2.0
}

impl Fault {
    /// Reads one from JSON; the error is a sentence.
    pub(super) fn parse(json: &[u8]) -> Result<Fault, String> {
        let fault: Fault = serde_json::from_slice(json).map_err(|error| format!("fault: {error}"))?;
        if !(0.0..=1.0).contains(&fault.rate) {
            return Err(format!("fault: rate = {}: not between 0 and 1", fault.rate));
        }
        if !(400..600).contains(&fault.status) {
            return Err(format!(
                "fault: status = {}: not between 400 and 599",
                fault.status
            ));
        }
        if !(fault.factor > 0.0 && fault.factor.is_finite()) {
            return Err(format!("fault: factor = {}: not above 0", fault.factor));
        }
        Ok(fault)
    }
}

/// The fault of one engine, as time goes on.
#[derive(Debug)]
pub(super) struct Faulty {
    fault: Option<Fault>,
    until: Option<Micros>,
    rng: Rng,
}

impl Faulty {
    /// No fault; `seed` decides which calls a rate hits.
    pub(super) fn new(seed: u64) -> Faulty {
        Faulty {
            fault: None,
            until: None,
            rng: Rng::new(seed),
        }
    }

    /// Replaces the fault.
    pub(super) fn set(&mut self, fault: Fault, now: Micros) {
        self.until = fault.for_ms.map(|ms| now + Duration::from_millis(ms));
        self.fault = Some(fault).filter(|fault| fault.kind != FaultKind::None);
    }

    /// The kind in force.
    pub(super) fn kind(&mut self, now: Micros) -> FaultKind {
        if self.until.is_some_and(|until| until <= now) {
            self.fault = None;
            self.until = None;
        }
        self.fault.as_ref().map_or(FaultKind::None, |fault| fault.kind)
    }

    /// When the fault ends by itself.
    pub(super) fn until(&self) -> Option<Micros> {
        self.until
    }

    /// How many times as long steps take.
    pub(super) fn slowdown(&mut self, now: Micros) -> f64 {
        self.active(FaultKind::Slow, now)
            .map_or(1.0, |fault| fault.factor)
    }

    /// How long `/health` waits.
    pub(super) fn health_delay(&mut self, now: Micros) -> Duration {
        let delay = self
            .active(FaultKind::HealthSlow, now)
            .map_or(0, |fault| fault.delay_ms);
        Duration::from_millis(delay)
    }

    /// The status that answers this call instead of the engine.
    pub(super) fn status(&mut self, now: Micros) -> Option<u16> {
        self.hit(FaultKind::Status, now).map(|fault| fault.status)
    }

    /// After how many tokens this stream is cut.
    pub(super) fn cut_after(&mut self, now: Micros) -> Option<u32> {
        self.hit(FaultKind::Cut, now).map(|fault| fault.after_chunks)
    }

    fn active(&mut self, kind: FaultKind, now: Micros) -> Option<&mut Fault> {
        if self.kind(now) == kind {
            self.fault.as_mut()
        } else {
            None
        }
    }

    /// Whether this call is hit, by the rate and the count.
    fn hit(&mut self, kind: FaultKind, now: Micros) -> Option<&Fault> {
        let draw = self.rng.unit();
        let fault = self.active(kind, now)?;
        if draw >= fault.rate || fault.count == Some(0) {
            return None;
        }
        if let Some(count) = &mut fault.count {
            *count -= 1;
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultKind, Faulty};
    use crate::types::Micros;

    fn faulty(json: &str) -> Faulty {
        let mut faulty = Faulty::new(1);
        faulty.set(Fault::parse(json.as_bytes()).unwrap(), Micros(0));
        faulty
    }

    #[test]
    fn a_fault_ends_by_its_time_or_its_count() {
        let mut timed = faulty(r#"{"kind":"frozen","for_ms":10}"#);
        assert_eq!(timed.kind(Micros(9_999)), FaultKind::Frozen);
        assert_eq!(timed.kind(Micros(10_000)), FaultKind::None);
        let mut counted = faulty(r#"{"kind":"status","status":429,"count":2}"#);
        let hits: Vec<_> = (0..4).map(|_| counted.status(Micros(0))).collect();
        assert_eq!(hits, [Some(429), Some(429), None, None]);
    }

    #[test]
    fn a_rate_hits_about_its_share() {
        let mut faulty = faulty(r#"{"kind":"status","rate":0.25}"#);
        let hits = (0..4000).filter(|_| faulty.status(Micros(0)).is_some()).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }

    #[test]
    fn nonsense_is_refused() {
        for json in [
            "{}",
            r#"{"kind":"fire"}"#,
            r#"{"kind":"cut","rate":2}"#,
            r#"{"kind":"cut","oops":2}"#,
        ] {
            assert!(Fault::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
