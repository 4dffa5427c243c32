//! The figures of a run.

use serde::Serialize;

use crate::types::Micros;

/// Part of the requests, from the first on, that the times to first token leave out: caches are still empty.
const WARM_UP: f64 = 0.15;
/// Throughput is taken between these parts of all completions.
const STEADY: (f64, f64) = (0.1, 0.9);

/// What a run gave. What wasn't measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests that were completed.
    pub completed: usize,
    /// Requests that weren't: too large for an engine, refused, or cut off by a restart.
    pub failed: usize,
    /// Cached tokens over prompt tokens, of all admitted requests.
    pub hit_ratio: f64,
    /// Times to the first token, without the first 15 % of the requests.
    pub ttft_p50_s: Option<f64>,
    /// The 99th percentile.
    pub ttft_p99_s: Option<f64>,
    /// The mean.
    pub ttft_mean_s: Option<f64>,
    /// Completions a second between 10 % and 90 % of them.
    pub requests_per_s: Option<f64>,
    /// The busiest backend's computing time over the mean.
    pub load_max_over_mean: f64,
    /// The median of what a decision took on this machine, keys at hand.
    pub decision_us_p50: Option<f64>,
    /// Virtual seconds from the first arrival to the last completion.
    pub span_s: f64,
}

/// Notes of a run under way.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Time to first token of each request, in the order of arrival; `None` until it came.
    ttft: Vec<Option<Micros>>,
    completions: Vec<Micros>,
    decisions_ns: Vec<u32>,
    pub(super) failed: usize,
    pub(super) busy_us: Vec<u64>,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
}

impl Record {
    pub(super) fn new(backends: usize) -> Record {
        Record {
            busy_us: vec![0; backends],
            ..Record::default()
        }
    }

    /// The next arrival's number.
    pub(super) fn arrival(&mut self) -> usize {
        self.ttft.push(None);
        self.ttft.len() - 1
    }

    pub(super) fn first_token(&mut self, arrival: usize, came: Micros, now: Micros) {
        self.ttft[arrival].get_or_insert(Micros(now.0 - came.0));
    }

    pub(super) fn completed(&mut self, now: Micros) {
        self.completions.push(now);
    }

    pub(super) fn decision(&mut self, took: std::time::Duration) {
        self.decisions_ns
            .push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(super) fn done(&self) -> usize {
        self.completions.len() + self.failed
    }

    pub(super) fn figures(mut self) -> Figures {
        let skipped = (self.ttft.len() as f64 * WARM_UP) as usize;
        let mut ttft: Vec<f64> = self.ttft[skipped..]
            .iter()
            .flatten()
            .map(|ttft| ttft.0 as f64 / 1e6)
            .collect();
        ttft.sort_by(f64::total_cmp);
        self.completions.sort();
        self.decisions_ns.sort_unstable();
        let mean_busy = self.busy_us.iter().sum::<u64>() as f64 / self.busy_us.len().max(1) as f64;
        let most_busy = self.busy_us.iter().max().copied().unwrap_or(0) as f64;
        Figures {
            completed: self.completions.len(),
            failed: self.failed,
            hit_ratio: self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64,
            ttft_p50_s: percentile(&ttft, 0.5),
            ttft_p99_s: percentile(&ttft, 0.99),
            ttft_mean_s: (!ttft.is_empty()).then(|| ttft.iter().sum::<f64>() / ttft.len() as f64),
            requests_per_s: throughput(&self.completions),
            load_max_over_mean: if mean_busy > 0.0 {
                most_busy / mean_busy
            } else {
                1.0
            },
            decision_us_p50: percentile(&self.decisions_ns, 0.5).map(|ns| f64::from(ns) / 1e3),
            span_s: self.completions.last().map_or(0.0, |last| last.0 as f64 / 1e6),
        }
    }
}

/// The smallest value that at least this part of `sorted` doesn't exceed.
fn percentile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn throughput(completions: &[Micros]) -> Option<f64> {
    let place = |part: f64| (completions.len() as f64 * part) as usize;
    let (from, to) = (place(STEADY.0), place(STEADY.1));
    let span_us = completions.get(to)?.0.checked_sub(completions.get(from)?.0)?;
    (span_us > 0).then(|| (to - from) as f64 * 1e6 / span_us as f64)
}
