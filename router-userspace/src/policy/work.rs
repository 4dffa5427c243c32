//! What each backend still has to prefill, as far as the router can know it.
//!
//! For each backend a FIFO of dispatched requests without a first token, with the tokens that its cache lacks.
//! All workers share it; every field is an atomic. The sum is exact, the FIFO is an estimate: races may skip an
//! entry, which makes one decision a little worse and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::types::Micros;

/// Requests of a FIFO that are kept one by one; those beyond it count in the sum only.
const FIFO_MAX: usize = 1024;
/// Bits of the word that hold the sum; the generation is above them.
const SUM_BITS: u32 = 48;
const SUM_MASK: u64 = (1 << SUM_BITS) - 1;
/// Prefill tokens/s of a backend that hasn't shown its speed yet.
pub(super) const SPEED_ASSUMED: f64 = 10_000.0;
/// A request that computes less than this says little about speed: fixed costs prevail.
const SAMPLE_TOKENS_MIN: u64 = 2048;
/// Samples before a speed counts as known.
const SAMPLES_MIN: u32 = 16;
/// How far a sample moves the speed, as a factor: at first, and once there are [`SAMPLES_MIN`].
const SAMPLE_STEP: (f32, f32) = (1.1, 1.05);
/// Part of the head request's work that may be taken as done before its first token says so.
const HEAD_DONE_MAX: f64 = 0.95;

/// One backend's prefill work.
#[derive(Debug)]
#[repr(align(128))]
pub struct BackendWork {
    /// Generation and sum of uncached tokens.
    sum: AtomicU64,
    /// When the last first token came, or the FIFO was last found empty.
    since_us: AtomicU64,
    /// Tokens/s as `f32` above the number of samples.
    speed: AtomicU64,
    head: AtomicU64,
    tail: AtomicU64,
    fifo: Box<[AtomicU32]>,
}

impl Default for BackendWork {
    fn default() -> BackendWork {
        BackendWork {
            sum: AtomicU64::new(0),
            since_us: AtomicU64::new(0),
            speed: AtomicU64::new(pack(SPEED_ASSUMED as f32, 0)),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            fifo: (0..FIFO_MAX).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl BackendWork {
    /// Notes a request that is about to be sent, of which `uncached_tokens` must be computed.
    #[must_use]
    pub fn dispatch(self: &Arc<Self>, uncached_tokens: u64, now: Micros) -> Ticket {
        let uncached = uncached_tokens.clamp(1, u64::from(u32::MAX));
        let word = self.sum.fetch_add(uncached, Ordering::AcqRel);
        let alone = self.head_tokens().is_none();
        if alone {
            self.since_us.store(now.0, Ordering::Relaxed);
        }
        let length = self
            .tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.head.load(Ordering::Acquire));
        let sequence = (length < FIFO_MAX as u64).then(|| {
            let sequence = self.tail.fetch_add(1, Ordering::AcqRel);
            self.entry(sequence).store(uncached as u32, Ordering::Release);
            sequence
        });
        Ticket {
            work: Arc::clone(self),
            generation: word >> SUM_BITS,
            sequence,
            uncached_tokens: uncached,
            sent_at: now,
            alone,
            waiting: true,
        }
    }

    /// Forgets everything: the backend has restarted or is gone. Tickets of before count no more.
    pub fn reset(&self) {
        let next = |word: u64| Some(((word >> SUM_BITS) + 1) << SUM_BITS);
        // Always some.
        let _ = self.sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        self.head
            .store(self.tail.load(Ordering::Acquire), Ordering::Release);
        self.speed.store(pack(SPEED_ASSUMED as f32, 0), Ordering::Relaxed);
    }

    /// Tokens that are probably still to be prefilled at `now`.
    #[must_use]
    pub fn pending_tokens(&self, now: Micros) -> f64 {
        let sum = (self.sum.load(Ordering::Acquire) & SUM_MASK) as f64;
        let Some(head) = self.head_tokens() else {
            return sum;
        };
        let since = Micros(self.since_us.load(Ordering::Relaxed));
        let (speed, _) = unpack(self.speed.load(Ordering::Relaxed));
        let done = (HEAD_DONE_MAX * f64::from(head)).min(f64::from(speed) * now.since(since).as_secs_f64());
        (sum - done).max(0.0)
    }

    /// Prefill tokens/s as learned from requests that had the FIFO to themselves; `None` while there were few.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let (speed, samples) = unpack(self.speed.load(Ordering::Relaxed));
        (samples >= SAMPLES_MIN).then(|| f64::from(speed))
    }

    /// Sets the speed as if it had been learned.
    pub fn set_speed(&self, tokens_per_s: f64) {
        self.speed
            .store(pack(tokens_per_s as f32, SAMPLES_MIN), Ordering::Relaxed);
    }

    /// The uncached tokens of the request that has waited longest; steps over those that are done.
    fn head_tokens(&self) -> Option<u32> {
        for _ in 0..FIFO_MAX {
            let head = self.head.load(Ordering::Acquire);
            if head >= self.tail.load(Ordering::Acquire) {
                return None;
            }
            let tokens = self.entry(head).load(Ordering::Acquire);
            if tokens > 0 {
                return Some(tokens);
            }
            let _ = self
                .head
                .compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Relaxed);
        }
        None
    }

    fn entry(&self, sequence: u64) -> &AtomicU32 {
        &self.fifo[sequence as usize % FIFO_MAX]
    }

    /// Takes a request out; says whether it was of this generation.
    fn settle(&self, generation: u64, sequence: Option<u64>, tokens: u64) -> bool {
        let less = |word: u64| {
            let left = (word & SUM_MASK).saturating_sub(tokens);
            (word >> SUM_BITS == generation).then_some(word & !SUM_MASK | left)
        };
        let settled = self.sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if let (Ok(_), Some(sequence)) = (settled, sequence) {
            self.entry(sequence).store(0, Ordering::Release);
        }
        settled.is_ok()
    }

    fn learn(&self, tokens: u64, seconds: f32) {
        if tokens < SAMPLE_TOKENS_MIN || seconds <= 0.0 {
            return;
        }
        // A running median: where the mirror was wrong about the cache a sample is wrong by any factor, so how far
        // it is from the others must not matter. A plain mean of speeds would spread long prompts by accident.
        let sample = tokens as f32 / seconds;
        let next = |word: u64| {
            let (speed, samples) = unpack(word);
            let known = samples >= SAMPLES_MIN;
            let step = if known { SAMPLE_STEP.1 } else { SAMPLE_STEP.0 };
            let moved = if sample > speed {
                speed * step
            } else {
                speed / step
            };
            // Not past the sample.
            let moved = if (moved > sample) == (speed > sample) {
                moved
            } else {
                sample
            };
            Some(pack(moved, samples.saturating_add(1)))
        };
        // Always some.
        let _ = self
            .speed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// A dispatched request's place in its backend's work; given back when dropped. It may go to another thread.
#[derive(Debug)]
pub struct Ticket {
    work: Arc<BackendWork>,
    generation: u64,
    sequence: Option<u64>,
    uncached_tokens: u64,
    sent_at: Micros,
    alone: bool,
    waiting: bool,
}

impl Ticket {
    /// Tokens of the prompt that were expected to be computed.
    #[must_use]
    pub fn uncached_tokens(&self) -> u64 {
        self.uncached_tokens
    }

    /// Notes that the first token has come. Only the first call counts.
    pub fn first_token(&mut self, now: Micros) {
        if self.settle() {
            self.work.since_us.store(now.0, Ordering::Relaxed);
            // One that came meanwhile may have shared its steps.
            let joined = |sequence| self.work.tail.load(Ordering::Relaxed) != sequence + 1;
            if self.alone && !self.sequence.is_none_or(joined) {
                let seconds = now.since(self.sent_at).as_secs_f32();
                self.work.learn(self.uncached_tokens, seconds);
            }
        }
    }

    fn settle(&mut self) -> bool {
        std::mem::take(&mut self.waiting)
            && self
                .work
                .settle(self.generation, self.sequence, self.uncached_tokens)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle();
    }
}

fn pack(speed: f32, samples: u32) -> u64 {
    u64::from(speed.to_bits()) << 32 | u64::from(samples)
}

fn unpack(word: u64) -> (f32, u32) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

#[cfg(test)]
mod tests {
    use super::{BackendWork, FIFO_MAX, SPEED_ASSUMED};
    use crate::types::Micros;
    use std::sync::Arc;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_head_request_counts_as_partly_done_but_never_as_done() {
        let work = Arc::new(BackendWork::default());
        let _first = work.dispatch(20_000, Micros(0));
        let _second = work.dispatch(1000, Micros(0));
        assert_eq!(work.pending_tokens(Micros(0)), 21_000.0);
        assert_eq!(work.pending_tokens(Micros(SECOND)), 21_000.0 - SPEED_ASSUMED);
        assert_eq!(work.pending_tokens(Micros(100 * SECOND)), 2000.0);
    }

    #[test]
    fn a_first_token_takes_its_request_out() {
        let work = Arc::new(BackendWork::default());
        let mut first = work.dispatch(20_000, Micros(0));
        let _second = work.dispatch(1000, Micros(10));
        first.first_token(Micros(2 * SECOND));
        first.first_token(Micros(9 * SECOND));
        assert_eq!(work.pending_tokens(Micros(2 * SECOND)), 1000.0);
    }

    /// `count` requests, one after the other, that take as long as the tokens that `sample` gives would.
    fn teach(work: &Arc<BackendWork>, count: u64, sample: impl Fn(u64) -> (u64, u64)) {
        for step in 0..count {
            let (tokens, micros) = sample(step);
            let at = Micros(step * 100 * SECOND);
            let mut ticket = work.dispatch(tokens, at);
            ticket.first_token(Micros(at.0 + micros));
        }
    }

    #[test]
    fn the_speed_is_learned_from_long_requests_and_outliers_do_not_matter() {
        let work = Arc::new(BackendWork::default());
        teach(&work, 10, |_| (20_000, SECOND));
        assert_eq!(work.speed(), None, "too few");
        teach(&work, 100, |_| (100, SECOND));
        assert_eq!(work.speed(), None, "too short");
        teach(&work, 200, |step| {
            (20_000, if step % 4 == 0 { SECOND / 50 } else { SECOND })
        });
        let speed = work.speed().unwrap();
        assert!((18_000.0..22_000.0).contains(&speed), "{speed}");
    }

    #[test]
    fn requests_that_shared_the_engine_teach_nothing() {
        let work = Arc::new(BackendWork::default());
        for step in 0..100 {
            let mut first = work.dispatch(5000, Micros(step));
            let mut second = work.dispatch(5000, Micros(step));
            first.first_token(Micros(step + 10));
            second.first_token(Micros(step + 20));
        }
        assert_eq!(work.speed(), None);
    }

    #[test]
    fn a_request_that_fails_takes_its_work_with_it() {
        let work = Arc::new(BackendWork::default());
        drop(work.dispatch(500, Micros(0)));
        assert_eq!(work.pending_tokens(Micros(0)), 0.0);
    }

    #[test]
    fn tickets_of_before_a_restart_count_no_more() {
        let work = Arc::new(BackendWork::default());
        let mut before = work.dispatch(500, Micros(0));
        work.reset();
        assert_eq!(work.pending_tokens(Micros(0)), 0.0);
        let _after = work.dispatch(700, Micros(0));
        before.first_token(Micros(SECOND));
        drop(before);
        assert_eq!(work.pending_tokens(Micros(0)), 700.0);
    }

    #[test]
    fn a_fifo_beyond_its_bound_still_sums_right() {
        let work = Arc::new(BackendWork::default());
        let tickets: Vec<_> = (0..3 * FIFO_MAX).map(|_| work.dispatch(10, Micros(0))).collect();
        assert_eq!(work.pending_tokens(Micros(0)), 30.0 * FIFO_MAX as f64);
        drop(tickets);
        assert_eq!(work.pending_tokens(Micros(0)), 0.0);
        let _next = work.dispatch(10, Micros(0));
        assert_eq!(work.pending_tokens(Micros(SECOND)), 0.5);
    }

    #[test]
    fn threads_leave_no_work_behind() {
        let work = Arc::new(BackendWork::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for step in 0..2000 {
                        let mut ticket = work.dispatch(step % 7, Micros(step));
                        if step % 3 == 0 {
                            ticket.first_token(Micros(step + 1));
                        }
                        if step == 1000 {
                            work.reset();
                        }
                    }
                });
            }
        });
        assert_eq!(work.pending_tokens(Micros(0)), 0.0);
    }
}
