//! What an engine says of its load on its own pages: `/metrics` in Prometheus text, and SGLang's `/v1/loads`.
//!
//! The metrics page is read in one pass over its bytes. Names are matched in every spelling in use; what a page
//! doesn't say is unknown, which is never the same as zero.

mod families;
mod loads;
mod ranks;
mod sample;

pub use loads::{ENGINE_LOADS_PATH, parse_engine_loads};

use families::{Counter, Family, family};
use ranks::Ranks;
use sample::Sample;

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// vLLM, or who uses its names.
    Vllm,
    /// SGLang.
    Sglang,
}

/// The load of one engine as it reports it; `None` = it doesn't say.
///
/// Counts of data-parallel ranks are summed, ratios averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineReport {
    /// Whose names it uses.
    pub kind: Option<EngineKind>,
    /// Requests in the running batch.
    pub running: Option<u32>,
    /// Requests that wait for a place in it.
    pub waiting: Option<u32>,
    /// Prompt tokens of those that are neither computed nor cached: the prefill work ahead of a newcomer.
    pub waiting_uncached_tokens: Option<u64>,
    /// The share of KV memory in use, 0 to 1.
    pub kv_usage_ratio: Option<f64>,
    /// Prompt tokens processed since its start.
    pub prompt_tokens_total: Option<u64>,
    /// Tokens generated since its start.
    pub generation_tokens_total: Option<u64>,
    /// Prompt tokens looked up in its prefix cache since its start.
    pub prefix_queries_total: Option<u64>,
    /// Those of them that it found there.
    pub prefix_hits_total: Option<u64>,
    /// Requests thrown out of the running batch for want of memory, since its start.
    pub preemptions_total: Option<u64>,
    /// Tokens in a block of its KV memory.
    pub block_tokens: Option<u32>,
    /// Tokens that its KV memory holds.
    pub capacity_tokens: Option<u64>,
}

impl EngineReport {
    /// Whether it says how busy it is.
    #[must_use]
    pub fn has_load(&self) -> bool {
        self.running.is_some() || self.waiting.is_some()
    }

    /// All tokens that it has computed since its start.
    #[must_use]
    pub fn tokens_total(&self) -> Option<u64> {
        match (self.prompt_tokens_total, self.generation_tokens_total) {
            (None, None) => None,
            (prompt, generation) => Some(
                prompt
                    .unwrap_or_default()
                    .saturating_add(generation.unwrap_or_default()),
            ),
        }
    }
}

/// Reads a metrics page. Lines that aren't well-formed samples of a known name are passed over.
///
/// Cost: one pass over the page; labels are looked at only in lines with a known name.
///
/// # Source
/// Prometheus text format 0.0.4 and OpenMetrics 1.0: `name{label="value",…} value [timestamp]`, one sample a line.
/// Names: vLLM `vllm/v1/metrics/loggers.py` and its V0 predecessor, SGLang
/// `python/sglang/srt/observability/metrics_collector.py`.
#[must_use]
pub fn parse_engine_metrics(page: &[u8]) -> EngineReport {
    let mut ranks = Ranks::default();
    let mut counters = Counters::default();
    let (mut from, mut whose) = (0, None);
    for end in memchr::memchr_iter(b'\n', page).chain([page.len()]) {
        let line = &page[from..end];
        from = end + 1;
        let Some((kind, known)) = sample::name(line).and_then(family) else {
            continue;
        };
        let Some(sample) = Sample::parse(line) else {
            continue;
        };
        whose.get_or_insert(kind);
        match known {
            Family::Gauge(gauge) => ranks.gauge(&sample, gauge),
            Family::Info => ranks.info(&sample),
            Family::Counter(counter) => counters.add(counter, sample.value),
        }
    }
    let mut report = ranks.report();
    counters.fill(&mut report);
    report.kind = whose;
    report
}

/// Counters are summed over all their series: those differ by rank, by source of the cached tokens, by streaming or
/// not, and no two count the same thing.
#[derive(Debug, Default)]
struct Counters([Option<f64>; Counter::COUNT]);

impl Counters {
    fn add(&mut self, counter: Counter, value: f64) {
        let sum = &mut self.0[counter as usize];
        *sum = Some(sum.unwrap_or(0.0) + value);
    }

    fn fill(&self, report: &mut EngineReport) {
        // A cast saturates; values are finite and not negative.
        let total = |counter: Counter| self.0[counter as usize].map(|value| value as u64);
        report.prompt_tokens_total = total(Counter::PromptTokens);
        report.generation_tokens_total = total(Counter::GenerationTokens);
        report.preemptions_total = total(Counter::Preemptions);
        report.prefix_queries_total = total(Counter::PrefixQueries).or(total(Counter::OldPrefixQueries));
        report.prefix_hits_total = total(Counter::PrefixHits).or(total(Counter::OldPrefixHits));
        if report.prefix_queries_total.is_none() && self.0[Counter::CachedTokens as usize].is_some() {
            // SGLang counts the cached tokens of all prompts, so that all prompt tokens were looked up.
            report.prefix_queries_total = report.prompt_tokens_total;
            report.prefix_hits_total = total(Counter::CachedTokens);
        }
    }
}

#[cfg(test)]
mod tests;
