//! Healthy but frozen: an engine whose core hangs still answers its probes, and nothing else.

use std::time::Duration;

use super::HealthConfig;
use super::ejection::Ejection;
use super::gaps::Gaps;
use crate::types::Micros;

/// Watches the bytes of one backend, and its token counters once it is silent.
#[derive(Debug)]
pub(super) struct Stall {
    /// Since when it has had requests in flight without a break.
    busy_since: Option<Micros>,
    last_byte: Option<Micros>,
    gaps: Gaps,
    /// When its token counters were last seen to move.
    moved_at: Option<Micros>,
    tokens: Option<u64>,
    /// The page was read, or found missing, since the last sign of life.
    judged_at: Option<Micros>,
    reading: bool,
    read_due: Micros,
    passed_at: Option<Micros>,
    stalled_at: Option<Micros>,
    ejection: Ejection,
}

impl Stall {
    pub(super) fn new(config: &HealthConfig) -> Stall {
        Stall {
            busy_since: None,
            last_byte: None,
            gaps: Gaps::default(),
            moved_at: None,
            tokens: None,
            judged_at: None,
            reading: false,
            read_due: Micros(0),
            passed_at: None,
            stalled_at: None,
            ejection: Ejection::new(config),
        }
    }

    /// Whether it may get requests.
    pub(super) fn admits(&self) -> bool {
        self.ejection.admits()
    }

    /// When it last sent a byte.
    pub(super) fn last_byte(&self) -> Option<Micros> {
        self.last_byte
    }

    /// A probe passed.
    pub(super) fn probe_passed(&mut self, now: Micros) {
        self.passed_at = Some(now);
    }

    /// It came back from the dead: what hung in it is gone.
    pub(super) fn forget(&mut self, config: &HealthConfig) {
        let gaps = std::mem::take(&mut self.gaps);
        let (reading, last_byte) = (self.reading, self.last_byte);
        *self = Stall::new(config);
        (self.gaps, self.reading, self.last_byte) = (gaps, reading, last_byte);
    }

    /// The silence, with requests in flight, from which it counts as stalled.
    pub(super) fn threshold(&self, config: &HealthConfig) -> Duration {
        let own = self.gaps.p99().map(|gap| gap * config.stall_gap_factor);
        own.unwrap_or_default().max(config.stall_silence_min)
    }

    /// Looks at a backend; returns whether its token counters should be read now.
    pub(super) fn observe(
        &mut self,
        now: Micros,
        in_flight: u32,
        last_byte: Option<Micros>,
        requests: u64,
        config: &HealthConfig,
    ) -> bool {
        self.note_byte(now, last_byte);
        if in_flight == 0 {
            (self.busy_since, self.tokens, self.judged_at) = (None, None, None);
        } else {
            self.busy_since.get_or_insert(now);
        }
        self.recover(config);
        let silence = self.silence(now);
        let threshold = self.threshold(config);
        let suspicious = config.stall_metrics && silence >= threshold / 2 && in_flight > 0;
        // A page being read for the first time in this silence is waited for; the reader has a timeout.
        let open = config.stall_metrics && self.judged_at.is_none();
        let silent = silence >= threshold && in_flight > 0 && !open;
        if silent && (self.ejection.admits() || self.ejection.is_trial()) {
            self.ejection.eject(now, config);
            self.stalled_at = Some(now);
        }
        self.ejection.tick(now, requests, in_flight == 0);
        let due = suspicious && !self.reading && now >= self.read_due;
        if due {
            (self.reading, self.read_due) = (true, now + config.interval);
        }
        due
    }

    /// Takes the sum of its token counters; `None` = it shows none.
    pub(super) fn tokens_read(&mut self, now: Micros, tokens: Option<u64>) {
        self.reading = false;
        if self.busy_since.is_none() {
            return;
        }
        self.judged_at = Some(now);
        if let (Some(before), Some(after)) = (self.tokens, tokens)
            && before != after
        {
            self.moved_at = Some(now);
        }
        self.tokens = tokens.or(self.tokens);
    }

    fn note_byte(&mut self, now: Micros, last_byte: Option<Micros>) {
        let Some(byte) = last_byte.filter(|byte| Some(*byte) > self.last_byte) else {
            return;
        };
        if let Some(busy) = self.busy_since {
            let before = self.last_byte.map_or(busy, |last| last.max(busy));
            self.gaps.add(byte.since(before), now);
        }
        self.last_byte = Some(byte);
        self.judged_at = None;
    }

    /// How long it has had requests in flight and given no sign of life.
    fn silence(&self, now: Micros) -> Duration {
        let Some(busy) = self.busy_since else {
            return Duration::ZERO;
        };
        let sign = self
            .last_byte
            .max(self.moved_at)
            .map_or(busy, |sign| sign.max(busy));
        now.since(sign)
    }

    /// Back by a byte, or by counters that move while probes pass.
    fn recover(&mut self, config: &HealthConfig) {
        let Some(stalled) = self.stalled_at else { return };
        let since = |moment: Option<Micros>| moment > Some(stalled);
        if since(self.last_byte) || (since(self.moved_at) && since(self.passed_at)) {
            self.stalled_at = None;
            self.ejection.clear(config);
        }
    }
}
