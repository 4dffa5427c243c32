//! What the router's process uses, while the soak runs and when it's over.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::live::lock;
use crate::gate::wait_until;
use crate::router::Router;

/// How often the process is looked at.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the last connection may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Memory that a router may come to use beyond that of its warm state: an allocator's slack.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
/// Runs too short for a warm state are held to this bound alone.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;
/// Samples below which there's no warm state.
const SAMPLES_MIN: usize = 60;

/// What must be at zero when nothing is served.
const NOTHING_LEFT: &[&str] = &[
    "warmpath_backend_in_flight",
    "warmpath_connections",
    "warmpath_flows",
    "warmpath_body_buffer_bytes",
    "warmpath_kernel_connections",
    "warmpath_kernel_in_flight",
];

/// Samples of resident memory and open files.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    files_before: usize,
    resident: Mutex<Vec<u64>>,
}

impl Watch {
    /// Of an idle router, once its threads have begun: they take their files after the port is known.
    pub(super) fn new(router: &Router) -> Watch {
        let mut files = 0;
        wait_until("the router's threads have begun", || {
            thread::sleep(SAMPLE_INTERVAL);
            let before = std::mem::replace(&mut files, open_files(router.pid()));
            before == files
        });
        Watch {
            pid: router.pid(),
            files_before: files,
            resident: Mutex::default(),
        }
    }

    pub(super) fn sample(&self) {
        lock(&self.resident).push(resident_bytes(self.pid));
    }

    /// Memory and files now, in words.
    pub(super) fn now(&self) -> String {
        format!(
            "{} MB resident, {} files",
            resident_bytes(self.pid) / 1_000_000,
            open_files(self.pid)
        )
    }

    /// Waits until the router has let go of everything; what stays is said.
    pub(super) fn nothing_left(&self, router: &Router) -> Vec<String> {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.left(router);
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            thread::sleep(SAMPLE_INTERVAL);
        }
    }

    fn left(&self, router: &Router) -> Vec<String> {
        let page = router.metrics();
        let mut left: Vec<String> = NOTHING_LEFT
            .iter()
            .filter_map(|name| {
                let value = page.sum(name, "").unwrap_or(0.0);
                (value != 0.0).then(|| format!("{name} is {value}"))
            })
            .collect();
        // The page itself takes a connection or two.
        let files = open_files(self.pid);
        if files > self.files_before + 2 {
            left.push(format!(
                "{files} open files, {} before the soak",
                self.files_before
            ));
        }
        left
    }

    /// Whether memory stayed flat; the error is what it did.
    pub(super) fn flat(&self) -> Result<String, String> {
        let samples = lock(&self.resident).clone();
        let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
        let quarter = samples.len() / 4;
        let (all, warm, last) = (
            most(&samples),
            most(&samples[quarter..quarter * 2]),
            most(&samples[samples.len() - quarter..]),
        );
        let word = format!(
            "resident memory: at most {} MB in the second quarter, {} MB in the last, {} MB in all",
            warm / 1_000_000,
            last / 1_000_000,
            all / 1_000_000
        );
        let grown = samples.len() >= SAMPLES_MIN && last > warm + warm / 10 + GROWTH_BYTES_MAX;
        if grown || all > RESIDENT_BYTES_MAX {
            return Err(word);
        }
        Ok(word)
    }
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
