//! The metrics that the request path writes. Names are stable; units are in the names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::kernel::KernelSource;

/// Why the router itself answered, instead of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnError {
    /// 400: the request broke RFC 9112 or a limit of it.
    BadRequest,
    /// 408: the request came too slowly.
    RequestTimeout,
    /// 413: the body is over `body_bytes_max`.
    BodyTooLarge,
    /// 431: the head is over `head_bytes_max` or `head_fields_max`.
    HeadTooLarge,
    /// 403 or 404: the path doesn't pass.
    PathRefused,
    /// 429: every healthy backend is saturated.
    Saturated,
    /// 502: the engine couldn't be reached, died or broke HTTP.
    BadGateway,
    /// 503: no healthy backend.
    NoBackend,
    /// 503: the connection cap or the body memory was full.
    Overloaded,
    /// 504: no answer in time.
    GatewayTimeout,
}

impl OwnError {
    /// The value of the label `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OwnError::BadRequest => "bad_request",
            OwnError::RequestTimeout => "request_timeout",
            OwnError::BodyTooLarge => "body_too_large",
            OwnError::HeadTooLarge => "head_too_large",
            OwnError::PathRefused => "path_refused",
            OwnError::Saturated => "saturated",
            OwnError::BadGateway => "bad_gateway",
            OwnError::NoBackend => "no_backend",
            OwnError::Overloaded => "overloaded",
            OwnError::GatewayTimeout => "gateway_timeout",
        }
    }
}

/// Why a stream went by copy although the kernel path was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyReason {
    /// The rule of `auto` chose copy.
    Rule,
    /// Close-delimited body, HTTP/1.0 client or other framing that the program doesn't carry.
    Framing,
    /// The socket couldn't be put into its map.
    InsertRefused,
    /// No free slot in a map.
    MapFull,
    /// An upgraded connection.
    Tunnel,
    /// The kernel's workers get no CPU.
    HopStalled,
}

impl CopyReason {
    /// The value of the label `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CopyReason::Rule => "rule",
            CopyReason::Framing => "framing",
            CopyReason::InsertRefused => "insert_refused",
            CopyReason::MapFull => "map_full",
            CopyReason::Tunnel => "tunnel",
            CopyReason::HopStalled => "hop_stalled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabel {
    path: &'static str,
}

/// Counters and gauges of the request path. Cloned handles share their values.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Client connections open now.
    pub connections: Gauge,
    /// Client connections accepted.
    pub connections_accepted_total: Counter,
    /// Client connections refused at the cap.
    pub connections_refused_total: Counter,
    responses_total: Family<ClassLabel, Counter>,
    own_errors_total: Family<ReasonLabel, Counter>,
    decisions_total: Family<ReasonLabel, Counter>,
    copy_flows_total: Family<ReasonLabel, Counter>,
    flows: Family<PathLabel, Gauge>,
    flows_started_total: Family<PathLabel, Counter>,
    flow_bytes_total: Family<PathLabel, Counter>,
    chunked_bytes_total: Family<PathLabel, Counter>,
    /// Requests sent again to another backend or on a fresh connection.
    pub retries_total: Counter,
    /// Retries that the budget forbade.
    pub retries_denied_total: Counter,
    /// Requests whose client left before the end of the answer.
    pub clients_left_total: Counter,
    /// Responses cut by their engine.
    pub responses_cut_total: Counter,
    /// Seconds from a request's last byte to the first byte of its answer.
    pub first_byte_seconds: Histogram,
    /// Seconds from a request's first byte to its end.
    pub request_seconds: Histogram,
    /// Bytes of request bodies held now.
    pub body_buffer_bytes: Gauge,
    /// Times that reading waited for body memory.
    pub body_waits_total: Counter,
    /// Upstream connections opened.
    pub upstreams_opened_total: Counter,
    /// Requests sent on a kept upstream connection.
    pub upstreams_reused_total: Counter,
    /// Flows that a full relay queue left on their worker.
    pub relay_queue_full_total: Counter,
    relay_scheduling: Family<ClassLabel, Gauge>,
    /// Times that a real-time relay had run too long and went among the ordinary threads.
    pub relay_step_downs_total: Counter,
    /// 1 while the kernel path is loaded and used.
    pub kernel_loaded: Gauge,
    /// Relays that give nothing to the kernel, since redirected bytes stood still.
    pub kernel_hop_stalled: Gauge,
    /// Times that redirected bytes stood still.
    pub kernel_hop_stalls_total: Counter,
    /// Spills: kernel flows given back to userspace by the memory limit.
    pub kernel_spills_total: Counter<u64, AtomicU64>,
    /// What the kernel path's maps say.
    pub kernel: KernelSource,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All metrics, registered and at zero.
    #[must_use]
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("warmpath");
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 18));
        let metrics = Metrics {
            connections: Gauge::default(),
            connections_accepted_total: Counter::default(),
            connections_refused_total: Counter::default(),
            responses_total: Family::default(),
            own_errors_total: Family::default(),
            decisions_total: Family::default(),
            copy_flows_total: Family::default(),
            flows: Family::default(),
            flows_started_total: Family::default(),
            flow_bytes_total: Family::default(),
            chunked_bytes_total: Family::default(),
            retries_total: Counter::default(),
            retries_denied_total: Counter::default(),
            clients_left_total: Counter::default(),
            responses_cut_total: Counter::default(),
            first_byte_seconds: seconds(),
            request_seconds: seconds(),
            body_buffer_bytes: Gauge::default(),
            body_waits_total: Counter::default(),
            upstreams_opened_total: Counter::default(),
            upstreams_reused_total: Counter::default(),
            relay_queue_full_total: Counter::default(),
            relay_scheduling: Family::default(),
            relay_step_downs_total: Counter::default(),
            kernel_loaded: Gauge::default(),
            kernel_hop_stalled: Gauge::default(),
            kernel_hop_stalls_total: Counter::default(),
            kernel_spills_total: Counter::default(),
            kernel: KernelSource::default(),
            registry: Registry::default(),
        };
        let r = &mut registry;
        r.register(
            "connections",
            "Client connections open now",
            metrics.connections.clone(),
        );
        r.register(
            "connections_accepted",
            "Client connections accepted",
            metrics.connections_accepted_total.clone(),
        );
        r.register(
            "connections_refused",
            "Client connections refused at the cap",
            metrics.connections_refused_total.clone(),
        );
        r.register(
            "responses",
            "Final responses sent to clients, by class",
            metrics.responses_total.clone(),
        );
        r.register(
            "own_errors",
            "Errors answered by the router itself, by reason",
            metrics.own_errors_total.clone(),
        );
        r.register(
            "decisions",
            "Routing decisions, by reason",
            metrics.decisions_total.clone(),
        );
        r.register(
            "copy_flows",
            "Streams copied although the kernel path was on, by reason",
            metrics.copy_flows_total.clone(),
        );
        r.register("flows", "Streams carried now, by path", metrics.flows.clone());
        r.register(
            "flows_started",
            "Streams that began, by path",
            metrics.flows_started_total.clone(),
        );
        r.register(
            "flow_bytes",
            "Response bytes carried for streams, by path",
            metrics.flow_bytes_total.clone(),
        );
        r.register(
            "chunked_bytes",
            "Bytes of chunked 2xx responses sent to clients, by path",
            metrics.chunked_bytes_total.clone(),
        );
        r.register("retries", "Requests sent again", metrics.retries_total.clone());
        r.register(
            "retries_denied",
            "Retries that the budget forbade",
            metrics.retries_denied_total.clone(),
        );
        r.register(
            "clients_left",
            "Requests whose client left before the end of the answer",
            metrics.clients_left_total.clone(),
        );
        r.register(
            "responses_cut",
            "Responses cut by their engine",
            metrics.responses_cut_total.clone(),
        );
        r.register(
            "first_byte_seconds",
            "Seconds from a request's last byte to the first byte of its answer",
            metrics.first_byte_seconds.clone(),
        );
        r.register(
            "request_seconds",
            "Seconds from a request's first byte to its end",
            metrics.request_seconds.clone(),
        );
        r.register(
            "body_buffer_bytes",
            "Bytes of request bodies held now",
            metrics.body_buffer_bytes.clone(),
        );
        r.register(
            "body_waits",
            "Times that reading waited for body memory",
            metrics.body_waits_total.clone(),
        );
        r.register(
            "upstreams_opened",
            "Upstream connections opened",
            metrics.upstreams_opened_total.clone(),
        );
        r.register(
            "upstreams_reused",
            "Requests sent on a kept upstream connection",
            metrics.upstreams_reused_total.clone(),
        );
        r.register(
            "relay_queue_full",
            "Flows that a full relay queue left on their worker",
            metrics.relay_queue_full_total.clone(),
        );
        r.register(
            "relay_scheduling",
            "Relays running, by the scheduling that the host granted",
            metrics.relay_scheduling.clone(),
        );
        r.register(
            "relay_step_downs",
            "Times that a real-time relay had run too long and went among the ordinary threads",
            metrics.relay_step_downs_total.clone(),
        );
        r.register(
            "kernel_loaded",
            "1 while the kernel path is loaded and used",
            metrics.kernel_loaded.clone(),
        );
        r.register(
            "kernel_hop_stalled",
            "Relays that give nothing to the kernel, since redirected bytes stood still",
            metrics.kernel_hop_stalled.clone(),
        );
        r.register(
            "kernel_hop_stalls",
            "Times that redirected bytes stood still",
            metrics.kernel_hop_stalls_total.clone(),
        );
        r.register(
            "kernel_spills",
            "Kernel flows given back to userspace by the memory limit",
            metrics.kernel_spills_total.clone(),
        );
        r.register_collector(Box::new(metrics.kernel.clone()));
        Metrics { registry, ..metrics }
    }

    /// Counts a final response by its status.
    pub fn count_response(&self, status: u16) {
        let class = match status {
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        self.responses_total.get_or_create(&ClassLabel { class }).inc();
    }

    /// Counts an error that the router answered itself.
    pub fn count_own_error(&self, error: OwnError) {
        self.own_errors_total
            .get_or_create(&ReasonLabel {
                reason: error.as_str(),
            })
            .inc();
    }

    /// Counts a routing decision.
    pub fn count_decision(&self, reason: &'static str) {
        self.decisions_total.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a stream that was copied although the kernel path was on.
    pub fn count_copy_flow(&self, reason: CopyReason) {
        self.copy_flows_total
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// A stream begins on `path` (`copy`, `kernel`, `worker`).
    pub fn flow_begins(&self, path: &'static str) {
        self.flows.get_or_create(&PathLabel { path }).inc();
        self.flows_started_total.get_or_create(&PathLabel { path }).inc();
    }

    /// A stream on `path` ends.
    pub fn flow_ends(&self, path: &'static str) {
        self.flows.get_or_create(&PathLabel { path }).dec();
    }

    /// Counts response bytes carried for streams on `path`.
    pub fn count_flow_bytes(&self, path: &'static str, bytes: u64) {
        self.flow_bytes_total
            .get_or_create(&PathLabel { path })
            .inc_by(bytes);
    }

    /// Counts bytes of a chunked 2xx response's body: what the kernel path is made for.
    pub fn count_chunked_bytes(&self, path: &'static str, bytes: u64) {
        self.chunked_bytes_total
            .get_or_create(&PathLabel { path })
            .inc_by(bytes);
    }

    /// A relay runs, by the scheduling that was granted (`fifo`, `slice`, `normal`).
    pub fn relay_scheduled(&self, class: &'static str) {
        self.relay_scheduling.get_or_create(&ClassLabel { class }).inc();
    }

    /// Such a relay has ended.
    pub fn relay_ended(&self, class: &'static str) {
        self.relay_scheduling.get_or_create(&ClassLabel { class }).dec();
    }

    /// For what other layers register beside these (backends, health, datapath).
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// The page of `/metrics` in OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut page = String::new();
        // Writing into a String can't fail.
        let _ = prometheus_client::encoding::text::encode(&mut page, &self.registry);
        page
    }
}
