//! The tables.

use super::run::{Row, spread};
use super::scenario::{Load, Scenario};

/// The table of one load.
pub(super) fn render(scenario: &Scenario, rows: &[Row]) -> String {
    let unit = match scenario.load {
        Load::Requests { .. } => "request",
        Load::Streams(_) | Load::FlatOut(_) => "chunk",
    };
    let mut lines = vec![
        format!("{}: {}", scenario.name, scenario.what),
        format!(
            "{:<24} {:>26} {:>10} {:>24} {:>26} {:>10} {:>8} {:>8} {:>6}",
            "",
            format!("added µs CPU a {unit}"),
            "(system)",
            "added p50 µs",
            "added p99 µs",
            format!("{unit}s/s"),
            "MB/s",
            "MB held",
            "lost"
        ),
    ];
    lines.extend(rows.iter().map(|row| line(scenario, row)));
    lines.join("\n")
}

fn line(scenario: &Scenario, row: &Row) -> String {
    let flat_out = matches!(scenario.load, Load::FlatOut(_));
    let delay = |values: &[f64], digits: usize| {
        if flat_out {
            "-".to_owned()
        } else {
            with_spread(values, digits)
        }
    };
    let middle = |values: &[f64]| spread(values).0;
    format!(
        "{:<24} {:>26} {:>10} {:>24} {:>26} {:>10.0} {:>8.0} {:>8.1} {:>6}",
        row.name,
        with_spread(&row.added_us, 1),
        format!("({:.1})", middle(&row.added_system_us)),
        delay(&row.added_p50_us, 0),
        delay(&row.added_p99_us, 0),
        middle(&row.per_s),
        middle(&row.megabytes_per_s),
        middle(&row.memory_mb),
        row.closed,
    )
}

fn with_spread(values: &[f64], digits: usize) -> String {
    let (median, least, most) = spread(values);
    format!("{median:.digits$} [{least:.digits$}..{most:.digits$}]")
}
