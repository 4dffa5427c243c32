//! A histogram of seconds as Prometheus text has it.

use std::fmt::Write as _;
use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0,
];

/// Counts of durations.
#[derive(Debug, Default)]
pub(super) struct SecondsHistogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl SecondsHistogram {
    /// Counts one duration.
    pub(super) fn add(&mut self, span: Duration) {
        let seconds = span.as_secs_f64();
        let at = BOUNDS.partition_point(|&bound| bound < seconds);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += span;
    }

    /// Writes it as metric `name` with `labels` (without braces).
    pub(super) fn write(&self, page: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        // Writing into a String can't fail.
        let _ = writeln!(page, "# TYPE {name} histogram");
        for (bound, count) in BOUNDS.iter().zip(self.buckets) {
            below += count;
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(page, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(page, "{name}_count{{{labels}}} {}", self.count);
        let _ = writeln!(page, "{name}_sum{{{labels}}} {}", self.sum.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::SecondsHistogram;
    use std::time::Duration;

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let mut histogram = SecondsHistogram::default();
        for ms in [1, 5, 6, 500_000] {
            histogram.add(Duration::from_millis(ms));
        }
        let mut page = String::new();
        histogram.write(&mut page, "x", "a=\"b\"");
        assert!(page.contains("x_bucket{a=\"b\",le=\"0.005\"} 2\n"));
        assert!(page.contains("x_bucket{a=\"b\",le=\"160\"} 3\n"));
        assert!(page.contains("x_bucket{a=\"b\",le=\"+Inf\"} 4\n"));
    }
}
