//! The demo's table.

use serde_json::Value;

/// A row: what was routed how, and the figures of `warmpath bench --json`.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The policy, and what is special about the row.
    pub(super) label: String,
    /// The object that bench wrote.
    pub(super) figures: Value,
}

struct Column {
    heading: &'static str,
    show: fn(&Value) -> String,
}

const COLUMNS: &[Column] = &[
    Column {
        heading: "hit ratio",
        show: |figures| number(figures, "hit_ratio", 3),
    },
    Column {
        heading: "TTFT p50 ms",
        show: |figures| number(figures, "ttft_p50_ms", 0),
    },
    Column {
        heading: "TTFT p99 ms",
        show: |figures| number(figures, "ttft_p99_ms", 0),
    },
    Column {
        heading: "inter-token p99 ms",
        show: |figures| number(figures, "itl_p99_ms", 1),
    },
    Column {
        heading: "requests/s",
        show: |figures| number(figures, "requests_per_s", 1),
    },
    Column {
        heading: "errors",
        show: |figures| number(figures, "errors", 0),
    },
];

/// A figure; a dash where it wasn't measured.
fn number(figures: &Value, key: &str, decimals: usize) -> String {
    figures[key]
        .as_f64()
        .map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// The rows side by side under a caption.
pub(super) fn table(caption: &str, rows: &[Row]) -> String {
    let first = rows
        .iter()
        .map(|row| row.label.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = format!("{caption}\n\n{:first$}", "policy");
    for column in COLUMNS {
        out += &format!("  {}", column.heading);
    }
    for row in rows {
        out += &format!("\n{:first$}", row.label);
        for column in COLUMNS {
            let width = column.heading.len();
            out += &format!("  {:>width$}", (column.show)(&row.figures));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_stand_right_aligned_under_their_headings() {
        let row = |label: &str, figures: Value| Row {
            label: label.to_owned(),
            figures,
        };
        let rows = [
            row(
                "round_robin",
                json!({"hit_ratio": 0.51, "ttft_p50_ms": 210.4, "errors": 0}),
            ),
            row(
                "x, nothing shared",
                json!({"hit_ratio": null, "requests_per_s": 15.96}),
            ),
        ];
        let table = table("simulated engines", &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "simulated engines");
        assert!(lines[2].starts_with("policy             hit ratio  TTFT p50 ms"));
        assert!(lines[3].starts_with("round_robin            0.510          210            -"));
        assert!(lines.iter().skip(2).all(|line| line.len() == lines[2].len()));
    }
}
