//! Monotonic time as a plain number, so that pure code takes it as an argument and a simulator can invent it.

use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A point in monotonic time, in microseconds since an arbitrary origin (for [`now`]: its first call).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// The time passed since `earlier`; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Micros {
    type Output = Micros;
    fn add(self, span: Duration) -> Micros {
        Micros(
            self.0
                .saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Micros {
    type Output = Micros;
    fn sub(self, span: Duration) -> Micros {
        Micros(
            self.0
                .saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

/// The monotonic clock of this process.
#[must_use]
pub fn now() -> Micros {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    Micros(u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX))
}
