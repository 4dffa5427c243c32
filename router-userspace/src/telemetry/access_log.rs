//! The access log: one JSON line for each request, written by a thread of its own.
//!
//! A worker only puts its record into a bounded queue. When the disk is slower than the requests, or full,
//! records are dropped and counted; serving never waits for a file.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

/// Records that wait for the writer; beyond it they are dropped and counted.
pub const ACCESS_QUEUE_MAX: usize = 16 << 10;

/// Records written between two flushes while the queue never runs empty.
const FLUSH_EVERY: usize = 1024;

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// One request, as the access log tells it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct AccessRecord {
    /// When its first byte came, milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The value of its `x-request-id`, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The client's address.
    pub client: std::net::SocketAddr,
    /// Its method.
    pub method: String,
    /// Its target without the query, which may hold secrets.
    pub path: String,
    /// The status it was answered with; 0 where the client left before.
    pub status: u16,
    /// How it ended: `complete`, `client_left`, `cut` (by its engine or a limit) or `stopped`.
    pub end: &'static str,
    /// Response body bytes sent to the client.
    pub bytes: u64,
    /// The name of the backend that it was sent to last; empty where it was sent to none.
    pub backend: String,
    /// Why that one: the words of `policy::Reason`, or what refused the request.
    pub reason: &'static str,
    /// Milliseconds from its last byte to the first byte of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// Milliseconds from its first byte to its end.
    pub total_ms: f64,
    /// Who carried the answer: `worker`, `copy`, `kernel`, or `none`.
    pub datapath: &'static str,
    /// How often it was sent again.
    pub retries: u32,
}

#[derive(Debug, Default)]
struct Counts {
    dropped: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct CountsCollector(Arc<Counts>);

impl Collector for CountsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (dropped, failed) = (&self.0.dropped, &self.0.failed);
        for (name, help, count) in [
            (
                "access_log_dropped",
                "Access log records dropped because the queue was full",
                dropped,
            ),
            (
                "access_log_write_failures",
                "Writes of the access log that failed",
                failed,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric)?;
        }
        Ok(())
    }
}

/// The way into the access log. Dropping it writes what is queued and ends the writer.
#[derive(Debug)]
pub struct AccessLog {
    queue: Option<SyncSender<AccessRecord>>,
    counts: Arc<Counts>,
    writer: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens `target` and starts its writer.
    ///
    /// # Errors
    /// Where the file can't be opened for appending, or no thread can be had.
    pub fn start(target: &AccessLogTarget) -> io::Result<AccessLog> {
        match target {
            AccessLogTarget::Stdout => AccessLog::start_on(io::stdout()),
            AccessLogTarget::File(path) => {
                // Appending lets an outside tool truncate the file under the writer (logrotate's copytruncate).
                AccessLog::start_on(
                    OpenOptions::new()
                        .create(true)
                        .append(true)
                        // A pipe without a reader is an error, not a wait.
                        .custom_flags(libc::O_NONBLOCK)
                        .open(path)?,
                )
            }
        }
    }

    fn start_on(output: impl Write + Send + 'static) -> io::Result<AccessLog> {
        let (queue, records) = sync_channel(ACCESS_QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let seen = Arc::clone(&counts);
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&records, output, &seen))?;
        Ok(AccessLog {
            queue: Some(queue),
            counts,
            writer: Some(writer),
        })
    }

    /// Puts a record into the queue; where it is full the record is dropped and counted. Never blocks.
    pub fn try_log(&self, record: AccessRecord) {
        let Some(queue) = &self.queue else { return };
        match queue.try_send(record) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Adds its counters to a page.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(CountsCollector(Arc::clone(&self.counts))));
    }

    /// Records dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Writes that failed, as on a full disk.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing left to write.
            let _ = writer.join();
        }
    }
}

fn write_all(records: &Receiver<AccessRecord>, output: impl Write, counts: &Counts) {
    let mut output = Lines {
        output: BufWriter::with_capacity(
            64 << 10,
            Forgiving {
                output,
                counts,
                failing: false,
            },
        ),
        line: Vec::with_capacity(512),
    };
    while let Ok(record) = records.recv() {
        output.write(&record);
        let more = records.try_iter().take(FLUSH_EVERY);
        more.for_each(|record| output.write(&record));
        output.flush();
    }
}

struct Lines<W: Write> {
    output: BufWriter<W>,
    line: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, record: &AccessRecord) {
        self.line.clear();
        // A record of plain values always serialises, and `Forgiving` takes every write.
        let _ = serde_json::to_writer(&mut self.line, record);
        self.line.push(b'\n');
        let _ = self.output.write_all(&self.line);
    }

    fn flush(&mut self) {
        let _ = self.output.flush();
    }
}

/// Takes every write; one that the file refuses is counted, the first of a row is warned of, and its bytes are gone.
struct Forgiving<'c, W> {
    output: W,
    counts: &'c Counts,
    failing: bool,
}

impl<W: Write> Write for Forgiving<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.output.write_all(bytes).and_then(|()| self.output.flush()) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the access log is being written again");
                }
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "the access log can't be written; serving goes on without it");
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    fn record(status: u16) -> AccessRecord {
        AccessRecord {
            time_unix_ms: 1,
            request_id: None,
            client: ([127, 0, 0, 1], 9).into(),
            method: "POST".to_owned(),
            path: "/v1/chat/completions".to_owned(),
            status,
            end: "complete",
            bytes: 12,
            backend: "a".to_owned(),
            reason: "affinity",
            first_byte_ms: Some(1.5),
            total_ms: 2.5,
            datapath: "copy",
            retries: 0,
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_record_is_one_json_line_in_order() {
        let shared = Shared::default();
        let log = AccessLog::start_on(shared.clone()).expect("thread");
        (200..300).for_each(|status| log.try_log(record(status)));
        drop(log);
        let bytes = shared.0.lock().expect("unpoisoned").clone();
        let text = String::from_utf8(bytes).expect("UTF-8");
        let statuses: Vec<u64> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
            .map(|line| line["status"].as_u64().expect("number"))
            .collect();
        assert_eq!(statuses, (200..300).collect::<Vec<u64>>());
        assert!(!text.contains("request_id"), "absent fields are left out");
    }

    /// Blocks in its first write until the test lets it go.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_disk_drops_and_counts_instead_of_blocking() {
        let (release, held) = mpsc::channel();
        let log = AccessLog::start_on(Stuck(held)).expect("thread");
        // One batch may be in the writer's hands; everything beyond that and the queue is dropped.
        let surplus = 100;
        let sent = ACCESS_QUEUE_MAX + FLUSH_EVERY + 1 + surplus;
        (0..sent).for_each(|_| log.try_log(record(200)));
        assert!(log.dropped() >= surplus as u64, "dropped {}", log.dropped());
        drop(release);
        drop(log);
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_counted_and_the_writer_lives_on() {
        let log = AccessLog::start_on(Full).expect("thread");
        let counts = Arc::clone(&log.counts);
        log.try_log(record(200));
        drop(log);
        assert!(counts.failed.load(Ordering::Relaxed) >= 1);
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 0);
    }
}
