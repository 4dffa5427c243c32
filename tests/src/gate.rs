//! Waiting for a condition.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::wire::DEADLINE;

const POLL: Duration = Duration::from_millis(5);

/// A door between a test and its upstream's script: one waits until the other opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<(Mutex<u64>, Condvar)>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets one waiter pass, now or later.
    pub fn open(&self) {
        let (count, changed) = &*self.inner;
        *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        changed.notify_one();
    }

    /// Waits to be let through.
    ///
    /// # Errors
    /// Where nobody opens within [`DEADLINE`].
    pub fn pass(&self) -> Result<()> {
        let (count, changed) = &*self.inner;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut count, timeout) = changed
            .wait_timeout_while(count, DEADLINE, |count| *count == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            bail!("a gate stayed closed");
        }
        *count -= 1;
        Ok(())
    }
}

/// Waits until `holds` is true.
///
/// # Panics
/// Where it isn't within [`DEADLINE`]; `what` says what was awaited.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_within(DEADLINE, what, holds);
}

/// Waits until `holds` is true.
///
/// # Panics
/// Where it isn't within `time`; `what` says what was awaited.
#[track_caller]
pub fn wait_within(time: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(POLL);
    }
}
