//! When the requests of a trace with times come.

use super::trace::Trace;
use crate::types::{Micros, Rng};

/// Recorded traces round their times to this.
const TICK_MS: u64 = 3000;
/// Times this near to a tick belong to it …
const TICK_SLACK_MS: u64 = 2;
/// … and where so many of all do, the others are taken for late writes of the recorder.
const TICKS_SHARE_MIN: f64 = 0.95;

/// The time of each request, in order. Where the trace's times are ticks, the requests of a tick are spread at
/// random over it; then all times are scaled to `rate` requests a second, if one is given.
pub(super) fn arrivals(trace: &Trace, rate: Option<f64>, seed: u64) -> Vec<Micros> {
    let at_ms: Vec<u64> = trace.requests.iter().map(|request| request.at_ms).collect();
    let mut times: Vec<f64> = at_ms.iter().map(|&ms| ms as f64 * 1000.0).collect();
    if has_ticks(&at_ms) {
        let mut rng = Rng::new(seed ^ 0xa221_7a1e);
        for (time, &ms) in times.iter_mut().zip(&at_ms) {
            *time = (tick(ms) as f64 + rng.unit()) * TICK_MS as f64 * 1000.0;
        }
        // Ticks don't overlap, so sorting keeps their order and spreads each in its own order.
        times.sort_by(f64::total_cmp);
    }
    let first = times.first().copied().unwrap_or(0.0);
    let span = times.last().copied().unwrap_or(0.0) - first;
    let scale = match rate {
        Some(rate) if span > 0.0 => times.len() as f64 / rate * 1e6 / span,
        _ => 1.0,
    };
    times
        .into_iter()
        .map(|time| Micros(((time - first) * scale) as u64))
        .collect()
}

fn tick(ms: u64) -> u64 {
    (ms + TICK_MS / 2) / TICK_MS
}

/// Whether the times are ticks and some tick has several requests.
fn has_ticks(at_ms: &[u64]) -> bool {
    let on_tick = |&&ms: &&u64| (ms + TICK_SLACK_MS) % TICK_MS <= 2 * TICK_SLACK_MS;
    let crowded = at_ms.windows(2).any(|pair| tick(pair[0]) == tick(pair[1]));
    let count = at_ms.iter().filter(on_tick).count();
    crowded && count as f64 >= TICKS_SHARE_MIN * at_ms.len() as f64
}
