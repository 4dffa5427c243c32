//! How a reading ends.

/// How one reading of an engine's load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeOutcome {
    /// A page that tells its load.
    Reported = 0,
    /// An answer without it: another status than 200, a page without the names, or one over the bound.
    Absent = 1,
    /// No whole answer in time.
    TimedOut = 2,
    /// A connection refused or broken off.
    Failed = 3,
}

impl ScrapeOutcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [ScrapeOutcome; 4] = [
        ScrapeOutcome::Reported,
        ScrapeOutcome::Absent,
        ScrapeOutcome::TimedOut,
        ScrapeOutcome::Failed,
    ];

    /// The value of the label `outcome`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ScrapeOutcome::Reported => "reported",
            ScrapeOutcome::Absent => "absent",
            ScrapeOutcome::TimedOut => "timed_out",
            ScrapeOutcome::Failed => "failed",
        }
    }
}
