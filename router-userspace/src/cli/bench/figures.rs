//! What a run measured, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::client::Failure;
use super::events::Usage;

/// The longest time that a histogram tells from longer ones, in µs: one hour.
const SPAN_US_MAX: u64 = 3_600_000_000;
/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Times, as an HDR histogram of µs.
#[derive(Debug)]
pub(super) struct Spans(Histogram<u64>);

impl Spans {
    fn new() -> Spans {
        let histogram = Histogram::new_with_bounds(1, SPAN_US_MAX, DIGITS);
        Spans(histogram.expect("the bounds are constants that the histogram accepts"))
    }

    /// Counts one.
    pub(super) fn add(&mut self, span: Duration) {
        self.0
            .saturating_record(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// The value in ms below which this share of the times lies; `None` while there are none.
    pub(super) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1000.0)
    }

    fn put(&self, name: &str, into: &mut Map<String, Value>) {
        let mean = (!self.0.is_empty()).then(|| rounded(self.0.mean() / 1000.0));
        into.insert(format!("{name}_mean_ms"), json!(mean));
        for (suffix, quantile) in [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p999", 0.999),
            ("max", 1.0),
        ] {
            into.insert(format!("{name}_{suffix}_ms"), json!(self.quantile_ms(quantile)));
        }
    }

    fn row(&self, name: &str, out: &mut String) {
        let cell = |quantile| {
            self.quantile_ms(quantile)
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
        };
        let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(cell);
        // Writing into a String can't fail.
        let _ = writeln!(out, "  {name:<18}{p50:>10}{p90:>10}{p99:>10}{max:>10}");
    }
}

/// What was asked for, as the output repeats it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The target's URL.
    pub(super) target: String,
    /// The workload's name.
    pub(super) workload: &'static str,
    /// The seed.
    pub(super) seed: u64,
    /// Requests/s of an open loop.
    pub(super) rate: Option<f64>,
    /// Requests at a time of a closed loop.
    pub(super) concurrency: Option<usize>,
}

/// Counts and times of one run.
#[derive(Debug)]
pub(super) struct Figures {
    /// From the intended send time to the first token.
    pub(super) ttft: Spans,
    /// Between two tokens.
    pub(super) itl: Spans,
    /// From the intended send time to the end.
    pub(super) latency: Spans,
    /// Requests begun.
    pub(super) started: u64,
    /// Requests answered in full.
    pub(super) succeeded: u64,
    /// Connections opened.
    pub(super) connections: u64,
    /// Sums over the answers that told.
    usage: Usage,
    /// Answers that told.
    usages: u64,
    /// Token events of answers that didn't.
    events: u64,
    errors: BTreeMap<Failure, u64>,
}

impl Figures {
    /// Nothing yet.
    pub(super) fn new() -> Figures {
        Figures {
            ttft: Spans::new(),
            itl: Spans::new(),
            latency: Spans::new(),
            started: 0,
            succeeded: 0,
            connections: 0,
            usage: Usage::default(),
            usages: 0,
            events: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts a request answered in full.
    pub(super) fn success(&mut self, latency: Duration, usage: Option<Usage>, events: u64) {
        self.succeeded += 1;
        self.latency.add(latency);
        let Some(usage) = usage else {
            self.events += events;
            return;
        };
        self.usages += 1;
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.cached_tokens += usage.cached_tokens;
        self.usage.output_tokens += usage.output_tokens;
    }

    /// Counts a failed one.
    pub(super) fn failure(&mut self, failure: Failure) {
        *self.errors.entry(failure).or_default() += 1;
    }

    /// Failed requests.
    pub(super) fn errors(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Cached tokens over prompt tokens; `None` where no answer told.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        (self.usage.prompt_tokens > 0)
            .then(|| self.usage.cached_tokens as f64 / self.usage.prompt_tokens as f64)
    }

    fn per_second(&self, count: u64, elapsed: Duration) -> f64 {
        count as f64 / elapsed.as_secs_f64().max(1e-6)
    }

    fn output_tokens(&self) -> u64 {
        self.usage.output_tokens + self.events
    }

    /// One object, as `--help` documents it.
    pub(super) fn json(&self, asked: &Asked, elapsed: Duration, stopped: bool) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
        put("target", json!(asked.target));
        put("workload", json!(asked.workload));
        put("seed", json!(asked.seed));
        put("rate", json!(asked.rate));
        put("concurrency", json!(asked.concurrency));
        put("duration_s", json!(rounded(elapsed.as_secs_f64())));
        put("stopped_early", json!(stopped));
        put("requests", json!(self.started));
        put("succeeded", json!(self.succeeded));
        put("errors", json!(self.errors()));
        let kinds: Map<String, Value> = self
            .errors
            .iter()
            .map(|(kind, &count)| (kind.name(), json!(count)))
            .collect();
        put("errors_by_kind", Value::Object(kinds));
        put("unfinished", json!(self.started - self.succeeded - self.errors()));
        put(
            "requests_per_s",
            json!(rounded(self.per_second(self.succeeded, elapsed))),
        );
        put(
            "output_tokens_per_s",
            json!(rounded(self.per_second(self.output_tokens(), elapsed))),
        );
        let told = |tokens: u64| {
            if self.usages > 0 {
                json!(tokens)
            } else {
                Value::Null
            }
        };
        put("prompt_tokens", told(self.usage.prompt_tokens));
        put("cached_tokens", told(self.usage.cached_tokens));
        put("output_tokens", json!(self.output_tokens()));
        put(
            "hit_ratio",
            json!(self.hit_ratio().map(|ratio| (ratio * 1e4).round() / 1e4)),
        );
        put("connections", json!(self.connections));
        self.ttft.put("ttft", &mut out);
        self.itl.put("itl", &mut out);
        self.latency.put("latency", &mut out);
        Value::Object(out)
    }

    /// A table for people.
    pub(super) fn table(&self, asked: &Asked, elapsed: Duration, stopped: bool) -> String {
        let mut out = String::new();
        let load = match (asked.rate, asked.concurrency) {
            (Some(rate), _) => format!("{rate} requests/s, open loop"),
            (None, concurrency) => format!("{} at a time, closed loop", concurrency.unwrap_or(1)),
        };
        let early = if stopped { ", stopped early" } else { "" };
        let seconds = elapsed.as_secs_f64();
        // Writing into a String can't fail.
        let _ = writeln!(
            out,
            "{}: {}, {load}, {seconds:.1} s{early}\n",
            asked.target, asked.workload
        );
        let _ = writeln!(
            out,
            "  {:<18}{:>10}{:>10}{:>10}{:>10}",
            "ms", "p50", "p90", "p99", "max"
        );
        self.ttft.row("first token", &mut out);
        self.itl.row("between tokens", &mut out);
        self.latency.row("total", &mut out);
        let hits = self.hit_ratio().map_or_else(
            || "not reported".to_owned(),
            |ratio| format!("{:.1} %", ratio * 100.0),
        );
        let _ = writeln!(out, "\n  cache hits        {hits}");
        let _ = writeln!(
            out,
            "  throughput        {:.1} requests/s, {:.0} output tokens/s",
            self.per_second(self.succeeded, elapsed),
            self.per_second(self.output_tokens(), elapsed),
        );
        let _ = writeln!(
            out,
            "  requests          {} of {} succeeded",
            self.succeeded, self.started
        );
        let kinds: Vec<String> = self
            .errors
            .iter()
            .map(|(kind, count)| format!("{} {count}", kind.name()))
            .collect();
        let kinds = if kinds.is_empty() {
            "none".to_owned()
        } else {
            kinds.join(", ")
        };
        let _ = writeln!(out, "  errors            {kinds}");
        out
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
