//! The log of a child process.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::wire::DEADLINE;

/// Lines of the log that a failing test prints.
const TAIL_LINES: usize = 40;

/// The log of a child, followed by a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    inner: Arc<(Mutex<Lines>, Condvar)>,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    /// Follows what a child writes into a pipe.
    pub(crate) fn follow(pipe: impl Read + Send + 'static) -> Log {
        let log = Log::default();
        let writer = log.clone();
        thread::spawn(move || {
            let (lines, changed) = &*writer.inner;
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .lines
                    .push(line);
                changed.notify_all();
            }
            lines.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            changed.notify_all();
        });
        log
    }

    /// What follows `marker` in the first line that has it, up to a blank. None where the log ended.
    #[track_caller]
    pub(crate) fn wait_for(&self, marker: &str) -> Option<String> {
        let found = |lines: &Lines| {
            let rest = lines.lines.iter().find_map(|line| line.split_once(marker))?.1;
            Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
        };
        let (lines, changed) = &*self.inner;
        let guard = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, timeout) = changed
            .wait_timeout_while(guard, DEADLINE, |lines| !lines.ended && found(lines).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let result = found(&guard);
        drop(guard);
        assert!(!timeout.timed_out(), "no {marker:?} in\n{}", self.tail());
        result
    }

    /// Waits until the child has closed the pipe, so that nothing of its log is missing.
    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        let (lines, changed) = &*self.inner;
        let guard = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, timeout) = changed
            .wait_timeout_while(guard, DEADLINE, |lines| !lines.ended)
            .unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        assert!(!timeout.timed_out(), "the log doesn't end:\n{}", self.tail());
    }

    pub(crate) fn text(&self) -> String {
        let (lines, _) = &*self.inner;
        lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines
            .join("\n")
    }

    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}
