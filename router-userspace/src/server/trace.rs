//! What is told of a request when it has ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::worker::Shared;
use crate::proto::http1::RequestHead;
use crate::telemetry::AccessRecord;
use crate::types::{Micros, now};

/// Gathers a request's figures; when dropped it counts the request and writes its line of the access log.
pub(super) struct Trace {
    shared: Arc<Shared>,
    started: Micros,
    record: Option<Box<AccessRecord>>,
}

impl Trace {
    pub(super) fn new(
        shared: &Arc<Shared>,
        head: &RequestHead,
        client: SocketAddr,
        started: Micros,
    ) -> Trace {
        let mut trace = Trace::begin(shared, client, started);
        trace.with(|record| {
            record.request_id = head.fields.first("x-request-id").map(text);
            record.method = text(head.method());
            record.path = text(head.path());
        });
        trace
    }

    /// Of something that isn't a request.
    pub(super) fn unreadable(shared: &Arc<Shared>, client: SocketAddr) -> Trace {
        Trace::begin(shared, client, now())
    }

    fn begin(shared: &Arc<Shared>, client: SocketAddr, started: Micros) -> Trace {
        let record = shared.access_log.is_some().then(|| {
            Box::new(AccessRecord {
                time_unix_ms: unix_ms().saturating_sub(millis(now().since(started)) as u64),
                request_id: None,
                client,
                method: String::new(),
                path: String::new(),
                status: 0,
                end: "client_left",
                bytes: 0,
                backend: String::new(),
                reason: "none",
                first_byte_ms: None,
                total_ms: 0.0,
                datapath: "none",
                retries: 0,
            })
        });
        Trace {
            shared: Arc::clone(shared),
            started,
            record,
        }
    }

    /// The client was answered with this status.
    pub(super) fn status(&mut self, status: u16) {
        self.shared.metrics.count_response(status);
        self.with(|record| {
            record.status = status;
            record.end = "complete";
        });
    }

    /// A backend was chosen, or none was, for this reason.
    pub(super) fn chosen(&mut self, backend: &str, reason: &'static str, retries: u32) {
        self.with(|record| {
            backend.clone_into(&mut record.backend);
            record.reason = reason;
            record.retries = retries;
        });
    }

    /// The answer's first byte came so long after the request was sent.
    pub(super) fn first_byte(&mut self, after: Duration) {
        self.shared
            .metrics
            .first_byte_seconds
            .observe(after.as_secs_f64());
        self.with(|record| record.first_byte_ms = Some(millis(after)));
    }

    /// The answer ended otherwise than as a whole.
    pub(super) fn ended(&mut self, end: &'static str) {
        self.with(|record| record.end = end);
    }

    /// Body bytes that were sent to the client, and by what way.
    pub(super) fn carried(&mut self, bytes: u64, datapath: &'static str) {
        self.with(|record| {
            record.bytes += bytes;
            record.datapath = datapath;
        });
    }

    fn with(&mut self, act: impl FnOnce(&mut AccessRecord)) {
        if let Some(record) = &mut self.record {
            act(record);
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let total = now().since(self.started);
        self.shared.metrics.request_seconds.observe(total.as_secs_f64());
        if let (Some(mut record), Some(log)) = (self.record.take(), &self.shared.access_log) {
            record.total_ms = millis(total);
            log.try_log(*record);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

/// Milliseconds since the Unix epoch.
pub(super) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
