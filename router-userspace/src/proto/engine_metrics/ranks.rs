//! The gauges of an engine's data-parallel ranks, brought together.
//!
//! A rank is told by the label `engine` (vLLM) or `dp_rank` (SGLang). Within a rank SGLang may write a series for
//! each tensor or pipeline rank, all of them the same, and beside the whole one for each priority: the largest is the
//! whole in either case.

use super::EngineReport;
use super::families::Gauge;
use super::sample::Sample;

/// Ranks that are told apart; further ones are left out.
const RANKS_MAX: usize = 512;

/// The ranks seen so far.
#[derive(Debug, Default)]
pub(super) struct Ranks<'p>(Vec<Rank<'p>>);

#[derive(Debug)]
struct Rank<'p> {
    label: &'p [u8],
    gauges: [Option<f64>; Gauge::COUNT],
}

impl<'p> Ranks<'p> {
    /// Takes a gauge.
    pub(super) fn gauge(&mut self, sample: &Sample<'p>, gauge: Gauge) {
        if let Some(rank) = self.rank(sample) {
            rank.raise(gauge, sample.value);
        }
    }

    /// Takes the series whose labels say how the KV memory is laid out.
    pub(super) fn info(&mut self, sample: &Sample<'p>) {
        let number = |names: [&[u8]; 2]| names.iter().find_map(|name| sample.label(name)).and_then(amount);
        let block = number([b"block_size", b"page_size"]);
        let blocks = number([b"num_gpu_blocks", b"num_pages"]);
        // Where a model has several kinds of attention this is less than blocks times their size.
        let capacity = sample.label(b"kv_cache_size_tokens").and_then(amount);
        let Some(rank) = self.rank(sample) else { return };
        for (gauge, value) in [
            (Gauge::PageTokens, block),
            (Gauge::Pages, blocks),
            (Gauge::CapacityTokens, capacity),
        ] {
            if let Some(value) = value {
                rank.raise(gauge, value);
            }
        }
    }

    fn rank(&mut self, sample: &Sample<'p>) -> Option<&mut Rank<'p>> {
        let label = sample
            .label(b"engine")
            .or_else(|| sample.label(b"dp_rank"))
            .unwrap_or_default();
        let index = match self.0.iter().position(|rank| rank.label == label) {
            Some(index) => index,
            None if self.0.len() < RANKS_MAX => {
                let gauges = [None; Gauge::COUNT];
                self.0.push(Rank { label, gauges });
                self.0.len() - 1
            }
            None => return None,
        };
        self.0.get_mut(index)
    }

    /// All gauges of the report.
    pub(super) fn report(&self) -> EngineReport {
        // Casts saturate; values are finite and not negative.
        let count = |gauge| self.sum(|rank| rank.get(gauge)).map(|sum| sum as u32);
        let usage = |rank: &Rank<'_>| rank.get(Gauge::KvUsage).or(rank.get(Gauge::OldKvUsage));
        EngineReport {
            running: count(Gauge::Running),
            waiting: count(Gauge::Waiting),
            kv_usage_ratio: self.mean(usage).map(|mean| mean.min(1.0)),
            block_tokens: self
                .0
                .iter()
                .find_map(Rank::block_tokens)
                .map(|tokens| tokens as u32),
            capacity_tokens: self.sum(Rank::capacity_tokens).map(|tokens| tokens as u64),
            ..EngineReport::default()
        }
    }

    fn sum(&self, value: impl Fn(&Rank<'p>) -> Option<f64>) -> Option<f64> {
        self.0.iter().filter_map(value).reduce(|sum, value| sum + value)
    }

    fn mean(&self, value: impl Fn(&Rank<'p>) -> Option<f64>) -> Option<f64> {
        let count = self.0.iter().filter(|rank| value(rank).is_some()).count();
        self.sum(value).map(|sum| sum / count as f64)
    }
}

impl Rank<'_> {
    fn get(&self, gauge: Gauge) -> Option<f64> {
        self.gauges[gauge as usize]
    }

    fn raise(&mut self, gauge: Gauge, value: f64) {
        let before = &mut self.gauges[gauge as usize];
        *before = Some(before.map_or(value, |before| before.max(value)));
    }

    /// Zero tokens is what an engine says that doesn't know yet.
    fn block_tokens(&self) -> Option<f64> {
        self.get(Gauge::PageTokens).filter(|tokens| *tokens > 0.0)
    }

    fn capacity_tokens(&self) -> Option<f64> {
        let blocks = || Some(self.get(Gauge::Pages)? * self.block_tokens()?);
        let told = self.get(Gauge::CapacityTokens).filter(|tokens| *tokens > 0.0);
        told.or_else(blocks).filter(|tokens| *tokens > 0.0)
    }
}

/// A label's value as an amount; engines write `None` for what they don't know.
fn amount(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}
