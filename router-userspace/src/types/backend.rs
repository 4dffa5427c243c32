//! One engine replica as the policies see it.

/// The index of a backend in the configured list; stable while the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(pub u32);

/// Whether a backend may get new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BackendState {
    /// Gets requests.
    Healthy = 0,
    /// Ejected by probes, refused connections or its rate of 5xx.
    Unhealthy = 1,
    /// Answers its probes but produces nothing for the requests it holds.
    Stalled = 2,
    /// Finishes what it has and gets nothing new, by an operator's word.
    Draining = 3,
}

impl BackendState {
    /// The state with this number; an unknown number is `Unhealthy`.
    #[must_use]
    pub fn from_u8(number: u8) -> BackendState {
        match number {
            0 => BackendState::Healthy,
            2 => BackendState::Stalled,
            3 => BackendState::Draining,
            _ => BackendState::Unhealthy,
        }
    }

    /// The word for it in JSON, metrics labels and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BackendState::Healthy => "healthy",
            BackendState::Unhealthy => "unhealthy",
            BackendState::Stalled => "stalled",
            BackendState::Draining => "draining",
        }
    }
}

/// An immutable view of one backend at the moment of a decision.
#[derive(Clone, Copy, Debug)]
pub struct BackendSnapshot {
    /// Which backend.
    pub id: BackendId,
    /// Its configured share relative to the others, at least 1.
    pub weight: u32,
    /// Whether it may get new requests.
    pub state: BackendState,
    /// Requests charged to it and not yet ended, over all workers.
    pub in_flight: u32,
    /// The in-flight count from which it is saturated.
    pub max_in_flight: u32,
    /// Requests that wait inside the engine, by a report at most 1 s old; `None` = unknown, which is not saturated.
    pub waiting: Option<u32>,
    /// The waiting count from which it is saturated.
    pub max_waiting: u32,
}

impl BackendSnapshot {
    /// Whether new requests should overflow to another backend.
    #[must_use]
    pub fn saturated(&self) -> bool {
        self.in_flight >= self.max_in_flight
            || self.waiting.is_some_and(|waiting| waiting >= self.max_waiting)
    }
}
