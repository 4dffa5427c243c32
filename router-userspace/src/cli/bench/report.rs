//! The figures as one HTML page that needs nothing else.

use std::fmt::Write as _;

use super::figures::{Figures, Spans};

/// Size of the chart and of the room around it for labels, in px.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 36.0;
/// Where the curves are drawn: equally far apart, so that the tail isn't squeezed.
const QUANTILES: [(&str, f64); 9] = [
    ("p10", 0.1),
    ("p25", 0.25),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1c2430;--paper:#fff;--faint:#d5dae1;--a:#0b6e99;--b:#b3541e;--c:#5b6472}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#12161c;--faint:#343c47;--a:#5cc3ee;--b:#f0a063;--c:#a9b2bf}}\
body{margin:2rem auto;max-width:46rem;padding:0 1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.3rem}pre{overflow-x:auto;font-size:.85rem}svg{width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg line{stroke:var(--faint)}\
polyline{fill:none;stroke-width:2}.a{stroke:var(--a)}.b{stroke:var(--b)}.c{stroke:var(--c)}";

/// The page: the table, the curves, and the JSON.
pub(super) fn html(figures: &Figures, table: &str, json: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>warmpath bench</title><style>{STYLE}</style>\n<h1>warmpath bench</h1>\n<pre>{}</pre>\n{}\n\
         <details><summary>JSON</summary><pre>{}</pre></details>\n</html>\n",
        escape(table),
        chart(figures),
        escape(json),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Milliseconds over quantiles, on a logarithmic axis.
fn chart(figures: &Figures) -> String {
    let curves = [
        ("a", "first token", &figures.ttft),
        ("b", "between tokens", &figures.itl),
        ("c", "total", &figures.latency),
    ];
    let points = |spans: &Spans| -> Vec<f64> {
        QUANTILES
            .iter()
            .filter_map(|&(_, quantile)| spans.quantile_ms(quantile))
            .collect()
    };
    let all: Vec<f64> = curves.iter().flat_map(|curve| points(curve.2)).collect();
    if all.is_empty() {
        return String::new();
    }
    let low = all
        .iter()
        .copied()
        .fold(f64::INFINITY, f64::min)
        .max(0.001)
        .log10()
        .floor();
    let high = all
        .iter()
        .copied()
        .fold(0.001, f64::max)
        .log10()
        .ceil()
        .max(low + 1.0);
    let x = |at: usize| LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / (QUANTILES.len() - 1) as f64;
    let y = |ms: f64| TOP + (HEIGHT - TOP - BOTTOM) * (high - ms.max(0.001).log10()) / (high - low);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Milliseconds by quantile\">"
    );
    // Writing into a String can't fail.
    for exponent in low as i32..=high as i32 {
        let ms = 10f64.powi(exponent);
        let (at, right) = (y(ms), WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    for (at, (name, _)) in QUANTILES.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            x(at),
            HEIGHT - 12.0
        );
    }
    let mut label_above = f64::NEG_INFINITY;
    let mut ends: Vec<_> = curves
        .iter()
        .map(|&(class, name, spans)| (class, name, points(spans)))
        .collect();
    ends.sort_by(|a, b| {
        b.2.last()
            .partial_cmp(&a.2.last())
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    for (class, name, values) in ends {
        let Some(&last) = values.last() else { continue };
        let line: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(at, &ms)| format!("{:.1},{:.1}", x(at), y(ms)))
            .collect();
        let _ = write!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", line.join(" "));
        // Labels of curves that end close together are moved apart.
        label_above = (y(last) + 4.0).max(label_above + 15.0);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{label_above:.1}\" style=\"fill:var(--{class})\">{name}</text>",
            WIDTH - RIGHT + 8.0
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::html;
    use crate::cli::bench::figures::Figures;
    use std::time::Duration;

    #[test]
    fn the_page_needs_nothing_else_and_escapes_what_it_shows() {
        let mut figures = Figures::new();
        assert!(!html(&figures, "", "").contains("<svg"));
        for ms in 1..1000 {
            figures.ttft.add(Duration::from_millis(ms));
            figures.itl.add(Duration::from_micros(ms));
        }
        let page = html(&figures, "a < b", "{}");
        assert!(page.contains("a &lt; b"));
        assert_eq!(page.matches("<polyline").count(), 2);
        for outside in ["http:", "https:", "src=", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
