//! The figures as a table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::SimulateArgs;
use crate::simulate::{Figures, Trace};

/// One policy's figures.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) policy: &'static str,
    pub(super) backends: u32,
    pub(super) rate: Option<f64>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

pub(super) fn json(args: &SimulateArgs, trace: &Trace, rows: &[Row]) -> Value {
    json!({
        "trace": args.trace.display().to_string(),
        "requests": trace.requests.len(),
        "block_tokens": trace.block_tokens,
        "backends": args.backends,
        "capacity_tokens": args.capacity_tokens,
        "rate": args.rate,
        "sessions_per_backend": args.sessions_per_backend,
        "saturate": args.saturate,
        "seed": args.seed,
        "routers": args.routers,
        "rows": rows,
    })
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<17}{:>8}{:>11}{:>11}{:>11}{:>12}{:>10}{:>13}{:>8}",
        "policy",
        "hits",
        "ttft p50",
        "ttft p99",
        "ttft mean",
        "requests/s",
        "max/mean",
        "decision µs",
        "failed"
    );
    for Row { policy, figures, .. } in rows {
        let _ = write!(
            text,
            "\n{policy:<17}{:>8.4}{:>11}{:>11}{:>11}{:>12}{:>10.2}{:>13}{:>8}",
            figures.hit_ratio,
            seconds(figures.ttft_p50_s),
            seconds(figures.ttft_p99_s),
            seconds(figures.ttft_mean_s),
            number(figures.requests_per_s, 2),
            figures.load_max_over_mean,
            number(figures.decision_us_p50, 1),
            figures.failed,
        );
    }
    text
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3} s"))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}
