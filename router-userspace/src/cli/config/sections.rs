//! One function for each section of the file.

use std::path::PathBuf;

use toml::{Table, Value};

use super::endpoint::{Endpoint, Resolve, host_port, url};
use super::fault::Complaint;
use super::section::{Reading, Section};
use super::value::{
    boolean, bytes, choice, duration, duration_or_off, integer, listen_addr, listen_addr_or_off, number,
    one_or_more, text,
};
use super::{BACKENDS_MAX, Config};
use crate::backend::{BackendConfig, HealthConfig, LoadConfig, MAX_WAITING_DEFAULT};
use crate::datapath::RelayPriority;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::server::{DatapathMode, HalfClose, Limits, PathScope, RetryConfig, Timeouts};
use crate::telemetry::{AccessLogTarget, LogFormat, LogLevel};

/// Reads every section of `table` into `config`.
pub(super) fn read(reading: &mut Reading, table: Table, config: &mut Config, resolve: Resolve<'_>) {
    let mut top = Section::new(reading, String::new(), "", table);
    top.set("listen", &mut config.server.listen, one_or_more(listen_addr));
    top.set("admin", &mut config.admin.listen, listen_addr_or_off);
    if let Some(file) = top.optional("admin_token_file", text) {
        config.admin.token_file = Some(PathBuf::from(file));
    }
    top.set("metrics", &mut config.admin.metrics, listen_addr_or_off);
    top.set("workers", &mut config.server.workers, workers);
    top.set("paths", &mut config.server.paths, paths);
    top.set("half_close", &mut config.server.half_close, choice(HALF_CLOSES));
    top.set("datapath", &mut config.server.datapath, datapath);
    top.set(
        "relay_priority",
        &mut config.server.relay_priority,
        choice(RELAY_PRIORITIES),
    );
    top.set("log", &mut config.log.level, choice(LEVELS));
    top.set("log_format", &mut config.log.format, choice(FORMATS));
    top.set("access_log", &mut config.access_log, access_log);
    let backends = top.tables("backend");
    let tcp_tables = top.tables("tcp");
    let policy_table = top.table("policy");
    let limits_table = top.table("limits");
    let timeouts_table = top.table("timeouts");
    let retry_table = top.table("retry");
    let health_table = top.table("health");
    let load_table = top.table("load");
    top.finish();
    read_backends(reading, backends, config, resolve);
    config.tcp = super::tcp::read(reading, tcp_tables, resolve);
    policy(named(reading, "policy", policy_table), &mut config.policy);
    limits(named(reading, "limits", limits_table), &mut config.server.limits);
    timeouts(
        named(reading, "timeouts", timeouts_table),
        &mut config.server.timeouts,
    );
    retry(named(reading, "retry", retry_table), &mut config.server.retry);
    health(named(reading, "health", health_table), &mut config.health);
    load(named(reading, "load", load_table), &mut config.load);
}

fn named<'r>(reading: &'r mut Reading, name: &str, table: Table) -> Section<'r> {
    Section::new(reading, name.to_owned(), name, table)
}

/// Bytes of a backend's name.
const BACKEND_NAME_BYTES_MAX: usize = 128;

const HALF_CLOSES: &[(&str, HalfClose)] = &[("abort", HalfClose::Abort), ("serve", HalfClose::Serve)];

const RELAY_PRIORITIES: &[(&str, RelayPriority)] =
    &[("auto", RelayPriority::Auto), ("normal", RelayPriority::Normal)];

const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

pub(super) fn workers(value: &Value) -> Result<usize, Complaint> {
    integer(0..=1024)(value)
}

pub(super) fn paths(value: &Value) -> Result<PathScope, Complaint> {
    choice(&[("inference", PathScope::Inference), ("all", PathScope::All)])(value)
}

pub(super) fn datapath(value: &Value) -> Result<DatapathMode, Complaint> {
    choice(&[
        ("auto", DatapathMode::Auto),
        ("kernel", DatapathMode::Kernel),
        ("copy", DatapathMode::Copy),
    ])(value)
}

pub(super) fn policy_name(value: &Value) -> Result<PolicyKind, Complaint> {
    let words = PolicyKind::ALL.map(|kind| (kind.name(), kind));
    choice(&words)(value)
}

fn access_log(value: &Value) -> Result<Option<AccessLogTarget>, Complaint> {
    Ok(match text(value)?.as_str() {
        "off" => None,
        "-" => Some(AccessLogTarget::Stdout),
        path => Some(AccessLogTarget::File(PathBuf::from(path))),
    })
}

fn read_backends(reading: &mut Reading, tables: Vec<Table>, config: &mut Config, resolve: Resolve<'_>) {
    if tables.len() > BACKENDS_MAX {
        let reason = format!("{} of them, over the {BACKENDS_MAX} supported", tables.len());
        reading.fault("backend", None, Complaint::new(reason, "remove some"));
        return;
    }
    for (index, table) in tables.into_iter().enumerate() {
        let section = Section::new(reading, format!("backend[{index}]"), "backend[]", table);
        if let Some(checked) = backend(section, resolve) {
            config.backends.push(checked);
        }
    }
}

fn backend(mut section: Section<'_>, resolve: Resolve<'_>) -> Option<BackendConfig> {
    let place = place(&mut section, resolve);
    let name = section.optional("name", backend_name);
    let (mut weight, mut max_in_flight, mut max_waiting) = (1, None, MAX_WAITING_DEFAULT);
    section.set("weight", &mut weight, integer(1..=1000));
    section.set("max_in_flight", &mut max_in_flight, in_flight_or_auto);
    section.set("max_waiting", &mut max_waiting, integer(1..=1_000_000));
    section.finish();
    let place = place?;
    Some(BackendConfig {
        name: name.unwrap_or(place.authority),
        addr: place.addr,
        weight,
        max_in_flight,
        max_waiting,
    })
}

/// `url` or `addr`: one of them, and only one.
fn place(section: &mut Section<'_>, resolve: Resolve<'_>) -> Option<Endpoint> {
    let (by_url, by_addr) = (section.take("url"), section.take("addr"));
    let (key, value, place) = match (by_url, by_addr) {
        (Some(value), None) => ("url", value.clone(), url(resolve)(&value)),
        (None, Some(value)) => ("addr", value.clone(), host_port(resolve)(&value)),
        (Some(value), Some(_)) => {
            let complaint = Complaint::new("given beside addr", "keep one of the two");
            section.fault("url", Some(&value), complaint);
            return None;
        }
        (None, None) => {
            let complaint = Complaint::new("missing", "write url = \"http://HOST:PORT\"");
            section.fault("url", None, complaint);
            return None;
        }
    };
    place
        .map_err(|complaint| section.fault(key, Some(&value), complaint))
        .ok()
}

/// A name that can stand in a metric's label and in a log line as it is.
pub(super) fn backend_name(value: &Value) -> Result<String, Complaint> {
    let name = text(value)?;
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
    if plain && name.len() <= BACKEND_NAME_BYTES_MAX {
        Ok(name)
    } else {
        let remedy = format!("write at most {BACKEND_NAME_BYTES_MAX} letters, digits and signs");
        Err(Complaint::new(
            "has a quote, a backslash or a space, or is too long",
            remedy,
        ))
    }
}

fn in_flight_or_auto(value: &Value) -> Result<Option<u32>, Complaint> {
    if value.as_str() == Some("auto") {
        return Ok(None);
    }
    integer(1..=1_000_000)(value).map(Some)
}

fn policy(mut section: Section<'_>, policy: &mut PolicyConfig) {
    section.set("name", &mut policy.kind, policy_name);
    section.set("virtual_nodes", &mut policy.virtual_nodes, integer(1..=10_000));
    section.set("load_factor", &mut policy.load_factor, number(1.01..=100.0));
    section.finish();
}

fn limits(mut section: Section<'_>, limits: &mut Limits) {
    section.set(
        "connections_max",
        &mut limits.connections_max,
        integer(0..=10_000_000),
    );
    section.set(
        "head_bytes_max",
        &mut limits.head_bytes_max,
        bytes(1 << 10..=1 << 20),
    );
    section.set("head_fields_max", &mut limits.head_fields_max, integer(8..=512));
    section.set("body_bytes_max", &mut limits.body_bytes_max, bytes(1..=1 << 40));
    section.set(
        "body_buffer_bytes",
        &mut limits.body_buffer_bytes,
        bytes(4 << 10..=1 << 32),
    );
    section.set(
        "body_buffers_total_bytes",
        &mut limits.body_buffers_total_bytes,
        bytes(64 << 10..=1 << 44),
    );
    section.set(
        "short_answer_bytes_max",
        &mut limits.short_answer_bytes_max,
        bytes(0..=1 << 30),
    );
    section.set(
        "relay_queue_max",
        &mut limits.relay_queue_max,
        integer(1..=1_000_000),
    );
    section.set(
        "idle_upstreams_max",
        &mut limits.idle_upstreams_max,
        integer(0..=65_536),
    );
    section.set(
        "kernel_flow_bytes_max",
        &mut limits.kernel_flow_bytes_max,
        bytes(64 << 10..=64 << 20),
    );
    section.set(
        "kernel_flows_bytes_max",
        &mut limits.kernel_flows_bytes_max,
        bytes(64 << 10..=1 << 44),
    );
    section.set(
        "kernel_events_bytes",
        &mut limits.kernel_events_bytes,
        bytes(4 << 10..=1 << 20),
    );
    section.finish();
}

fn timeouts(mut section: Section<'_>, timeouts: &mut Timeouts) {
    section.set("connect", &mut timeouts.connect, duration);
    section.set("head", &mut timeouts.head, duration);
    section.set("body_idle", &mut timeouts.body_idle, duration);
    section.set("keep_alive", &mut timeouts.keep_alive, duration);
    section.set("first_byte", &mut timeouts.first_byte, duration_or_off);
    section.set("stream_idle", &mut timeouts.stream_idle, duration);
    section.set("client_write", &mut timeouts.client_write, duration);
    section.set("upstream_write", &mut timeouts.upstream_write, duration);
    section.set("drain", &mut timeouts.drain, duration);
    section.set("upstream_idle", &mut timeouts.upstream_idle, duration);
    section.set("body_buffer_wait", &mut timeouts.body_buffer_wait, duration);
    section.finish();
}

fn retry(mut section: Section<'_>, retry: &mut RetryConfig) {
    section.set("tries_max", &mut retry.tries_max, integer(1..=16));
    section.set("budget_percent", &mut retry.budget_percent, integer(0..=100));
    section.set("budget_floor", &mut retry.budget_floor, integer(0..=100_000));
    section.set("statuses", &mut retry.statuses, statuses);
    section.set("generation", &mut retry.generation, boolean);
    section.finish();
}

/// A list, possibly empty, of statuses that an engine may answer with when it did nothing.
fn statuses(value: &Value) -> Result<Vec<u16>, Complaint> {
    match value {
        Value::Array(list) => list.iter().map(integer_status).collect(),
        _ => Err(Complaint::new("not a list", "write [429, 503] or []")),
    }
}

fn integer_status(value: &Value) -> Result<u16, Complaint> {
    match value.as_integer() {
        Some(status @ 400..=599) => Ok(status as u16),
        _ => Err(Complaint::new(
            "not a list of statuses from 400 to 599",
            "write [429, 503] or []",
        )),
    }
}

fn health(mut section: Section<'_>, health: &mut HealthConfig) {
    section.set("enabled", &mut health.enabled, boolean);
    section.set("path", &mut health.path, request_path);
    section.set("interval", &mut health.interval, duration);
    section.set("connect_timeout", &mut health.connect_timeout, duration);
    section.set("probe_timeout", &mut health.probe_timeout, duration);
    section.set("fail_count", &mut health.fail_count, integer(1..=100));
    section.set("pass_count", &mut health.pass_count, integer(1..=100));
    section.set("recent_byte", &mut health.recent_byte, duration);
    section.set("stall_silence_min", &mut health.stall_silence_min, duration);
    section.set("stall_gap_factor", &mut health.stall_gap_factor, integer(1..=100));
    section.set("stall_metrics", &mut health.stall_metrics, boolean);
    section.set("metrics_path", &mut health.metrics_path, request_path);
    section.set("error_window", &mut health.error_window, duration);
    section.set(
        "error_count_min",
        &mut health.error_count_min,
        integer(1..=1_000_000),
    );
    section.set(
        "error_share_percent",
        &mut health.error_share_percent,
        integer(0..=99),
    );
    section.set(
        "error_pool_factor",
        &mut health.error_pool_factor,
        integer(1..=1000),
    );
    section.set("eject_time", &mut health.eject_time, duration);
    section.set("eject_time_max", &mut health.eject_time_max, duration);
    section.set(
        "eject_share_percent",
        &mut health.eject_share_percent,
        integer(0..=100),
    );
    section.finish();
}

fn load(mut section: Section<'_>, load: &mut LoadConfig) {
    section.set("enabled", &mut load.enabled, boolean);
    section.set("path", &mut load.path, request_path);
    section.set("interval", &mut load.interval, duration);
    section.set("timeout", &mut load.timeout, duration);
    section.finish();
}

fn request_path(value: &Value) -> Result<String, Complaint> {
    let path = text(value)?;
    let plain = path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if path.starts_with('/') && plain {
        Ok(path)
    } else {
        Err(Complaint::new(
            "not a path",
            "write it with a leading / and without spaces",
        ))
    }
}
