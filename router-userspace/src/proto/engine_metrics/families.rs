//! The names that are read, in all their spellings.

use super::EngineKind;

/// What a known name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Gauge(Gauge),
    Counter(Counter),
    /// Block size and capacity stand in its labels.
    Info,
}

/// Values of the moment, one for each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gauge {
    Running,
    Waiting,
    KvUsage,
    /// vLLM's name before V1; used where the newer is absent.
    OldKvUsage,
    PageTokens,
    Pages,
    CapacityTokens,
}

/// Totals since the engine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    PromptTokens,
    GenerationTokens,
    PrefixQueries,
    PrefixHits,
    OldPrefixQueries,
    OldPrefixHits,
    CachedTokens,
    Preemptions,
}

impl Gauge {
    pub(super) const COUNT: usize = Gauge::CapacityTokens as usize + 1;
}

impl Counter {
    pub(super) const COUNT: usize = Counter::Preemptions as usize + 1;
}

/// The meaning of a sample's name; `None` where it isn't read.
pub(super) fn family(name: &[u8]) -> Option<(EngineKind, Family)> {
    let (kind, rest) = match name.first()? {
        b'v' => (EngineKind::Vllm, name.strip_prefix(b"vllm")?),
        b's' => (EngineKind::Sglang, name.strip_prefix(b"sglang")?),
        _ => return None,
    };
    // Recorders that know no colon in names write an underscore.
    let (b':' | b'_', bare) = rest.split_first()? else {
        return None;
    };
    let family = match kind {
        EngineKind::Vllm => vllm(bare),
        EngineKind::Sglang => sglang(bare),
    };
    Some((kind, family?))
}

fn vllm(bare: &[u8]) -> Option<Family> {
    let gauge = match bare {
        b"num_requests_running" => Gauge::Running,
        b"num_requests_waiting" => Gauge::Waiting,
        b"kv_cache_usage_perc" => Gauge::KvUsage,
        b"gpu_cache_usage_perc" => Gauge::OldKvUsage,
        b"cache_config_info" => return Some(Family::Info),
        _ => return counter(bare, &VLLM_COUNTERS),
    };
    Some(Family::Gauge(gauge))
}

fn sglang(bare: &[u8]) -> Option<Family> {
    let gauge = match bare {
        b"num_running_reqs" => Gauge::Running,
        b"num_queue_reqs" => Gauge::Waiting,
        b"token_usage" => Gauge::KvUsage,
        b"page_size" => Gauge::PageTokens,
        b"num_pages" => Gauge::Pages,
        b"max_total_num_tokens" => Gauge::CapacityTokens,
        b"cache_config_info" => return Some(Family::Info),
        _ => return counter(bare, &SGLANG_COUNTERS),
    };
    Some(Family::Gauge(gauge))
}

const VLLM_COUNTERS: [(&[u8], Counter); 7] = [
    (b"prompt_tokens", Counter::PromptTokens),
    (b"generation_tokens", Counter::GenerationTokens),
    (b"prefix_cache_queries", Counter::PrefixQueries),
    (b"prefix_cache_hits", Counter::PrefixHits),
    (b"gpu_prefix_cache_queries", Counter::OldPrefixQueries),
    (b"gpu_prefix_cache_hits", Counter::OldPrefixHits),
    (b"num_preemptions", Counter::Preemptions),
];

const SGLANG_COUNTERS: [(&[u8], Counter); 4] = [
    (b"prompt_tokens", Counter::PromptTokens),
    (b"generation_tokens", Counter::GenerationTokens),
    (b"cached_tokens", Counter::CachedTokens),
    (b"num_retracted_requests", Counter::Preemptions),
];

/// Counters are written with or without `_total`, by the recorder's taste.
fn counter(bare: &[u8], counters: &[(&[u8], Counter)]) -> Option<Family> {
    let bare = bare.strip_suffix(b"_total").unwrap_or(bare);
    let known = counters.iter().find(|(name, _)| *name == bare)?;
    Some(Family::Counter(known.1))
}
