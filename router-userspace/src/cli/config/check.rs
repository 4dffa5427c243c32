//! What can only be judged with the whole of the settings in view.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::fault::{Complaint, Fault, Origin};
use super::section::Reading;
use super::{Config, Flags};
use crate::backend::{LoadConfig, REPORT_AGE_MAX};
use crate::server::AdminToken;

type Found = (bool, String, Option<String>, String, &'static str);

/// uvicorn, which serves most engines, closes an idle connection at this age.
const ENGINE_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A metrics page costs an engine about a millisecond of the thread that also serves its requests.
const LOAD_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Checks settings against each other, reads the admin token and fills in what is derived; returns warnings.
pub(super) fn whole(reading: &mut Reading, config: &mut Config, flags: &Flags) -> Vec<Fault> {
    let mut check = Check {
        reading,
        flags,
        warnings: Vec::new(),
    };
    if config.backends.is_empty() && !config.tcp.is_empty() {
        // Nothing to serve HTTP from.
        config.server.listen.clear();
    }
    check.listeners(config);
    check.admin_token(config);
    check.backends(config);
    check.tcp(config);
    check.times_and_sizes(config);
    check.warnings
}

struct Check<'c> {
    reading: &'c mut Reading,
    flags: &'c Flags,
    warnings: Vec<Fault>,
}

impl Check<'_> {
    /// The fault of a setting, told where it was made: as a flag or in the file.
    fn found(&self, key: &str, value: Option<String>, complaint: Complaint) -> Fault {
        let by_flag = match key {
            "listen" => !self.flags.listen.is_empty(),
            "admin" => self.flags.admin.is_some(),
            "metrics" => self.flags.metrics.is_some(),
            _ if key.starts_with("backend") => !self.flags.backend.is_empty(),
            _ => false,
        };
        let (origin, key) = if by_flag || self.reading.file.is_empty() {
            let flag = key.split('[').next().unwrap_or(key).replace('_', "-");
            (Origin::Flag, format!("--{flag}"))
        } else {
            (Origin::File(self.reading.file.clone()), key.to_owned())
        };
        Fault {
            origin,
            key,
            value,
            reason: complaint.reason,
            remedy: complaint.remedy,
        }
    }

    fn fault(&mut self, key: &str, value: Option<String>, reason: impl Into<String>, remedy: &str) {
        let fault = self.found(key, value, Complaint::new(reason, remedy));
        self.reading.faults.push(fault);
    }

    fn warn(&mut self, key: &str, value: Option<String>, reason: impl Into<String>, remedy: &str) {
        let fault = self.found(key, value, Complaint::new(reason, remedy));
        self.warnings.push(fault);
    }

    /// No two listeners on one port.
    fn listeners(&mut self, config: &Config) {
        let mut taken: Vec<(String, SocketAddr)> = Vec::new();
        let clients = config
            .server
            .listen
            .iter()
            .map(|addr| ("listen".to_owned(), *addr));
        let admin = config.admin.listen.map(|addr| ("admin".to_owned(), addr));
        let metrics = config.admin.metrics.map(|addr| ("metrics".to_owned(), addr));
        let tcp = config.tcp.iter().enumerate().flat_map(|(index, tcp)| {
            tcp.listen
                .iter()
                .map(move |addr| (format!("tcp[{index}].listen"), *addr))
        });
        for (key, addr) in clients.chain(admin).chain(metrics).chain(tcp) {
            if let Some((other, at)) = taken.iter().find(|(_, at)| collide(*at, addr)) {
                let reason = format!("the same port as {other} ({at})");
                self.fault(
                    &key,
                    quoted(&addr),
                    reason,
                    "give each listener a port of its own",
                );
            }
            taken.push((key, addr));
        }
    }

    /// Whoever reaches the admin port from another host must show a token.
    fn admin_token(&mut self, config: &mut Config) {
        if let Some(file) = &config.admin.token_file {
            match AdminToken::read(file) {
                Ok(token) => config.admin.token = Some(token),
                Err(error) => {
                    let value = Some(format!("{:?}", file.display().to_string()));
                    let remedy =
                        "write a token of at least 16 letters and digits into it, readable by its owner";
                    self.fault("admin_token_file", value, error.to_string(), remedy);
                }
            }
        } else if let Some(addr) = config.admin.listen
            && !addr.ip().is_loopback()
        {
            let remedy = "set admin_token_file in the file of --config, or listen on 127.0.0.1";
            self.fault(
                "admin",
                quoted(&addr),
                "reachable from other hosts without a token",
                remedy,
            );
        }
    }

    /// Names are unique; a backend isn't the router itself; equal addresses are odd.
    fn backends(&mut self, config: &Config) {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut addrs: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        let mut found: Vec<Found> = Vec::new();
        for (index, backend) in config.backends.iter().enumerate() {
            let key = format!("backend[{index}]");
            if config.server.listen.iter().any(|at| reaches(*at, backend.addr)) {
                found.push((
                    true,
                    key,
                    quoted(&backend.addr),
                    "the router itself".to_owned(),
                    "",
                ));
                continue;
            }
            let (named, placed) = (names.get(backend.name.as_str()), addrs.get(&backend.addr));
            if let Some(first) = placed {
                let reason = format!("the same address as backend[{first}]");
                let remedy = "give each engine once, with a weight";
                // With one name for both their metrics would be one; with two it may be meant.
                found.push((named.is_some(), key, quoted(&backend.addr), reason, remedy));
            } else if let Some(first) = named {
                let reason = format!("the same name as backend[{first}], so their metrics would be one");
                found.push((true, key, quoted(&backend.name), reason, "give each its own name"));
            }
            addrs.entry(backend.addr).or_insert(index);
            names.entry(&backend.name).or_insert(index);
        }
        for (wrong, key, value, reason, remedy) in found {
            if wrong {
                self.fault(&key, value, reason, remedy);
            } else {
                self.warn(&key, value, reason, remedy);
            }
        }
    }

    /// Names are unique where metrics need them to be; a listener isn't its own backend.
    fn tcp(&mut self, config: &Config) {
        let mut listeners: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found: Vec<(String, Option<String>, String, &'static str)> = Vec::new();
        for (index, tcp) in config.tcp.iter().enumerate() {
            let key = format!("tcp[{index}]");
            if let Some(first) = listeners.insert(&tcp.name, index) {
                let reason = format!("the same name as tcp[{first}], so their metrics would be one");
                found.push((key.clone(), quoted(&tcp.name), reason, "give each its own name"));
            }
            let mut names: BTreeMap<&str, usize> = BTreeMap::new();
            for (place, backend) in tcp.backends.iter().enumerate() {
                let key = format!("{key}.backend[{place}]");
                if tcp.listen.iter().any(|at| reaches(*at, backend.addr)) {
                    let reason = "the listener itself".to_owned();
                    found.push((key.clone(), quoted(&backend.addr), reason, ""));
                }
                if let Some(first) = names.insert(&backend.name, place) {
                    let reason = format!("the same name as backend[{first}], so their metrics would be one");
                    found.push((key, quoted(&backend.name), reason, "give each its own name"));
                }
            }
        }
        for (key, value, reason, remedy) in found {
            self.fault(&key, value, reason, remedy);
        }
    }

    fn times_and_sizes(&mut self, config: &Config) {
        let (limits, timeouts, health) = (&config.server.limits, &config.server.timeouts, &config.health);
        if limits.body_buffer_bytes > limits.body_buffers_total_bytes {
            let value = Some(limits.body_buffer_bytes.to_string());
            let reason = "over limits.body_buffers_total_bytes, so that no body could be held";
            self.fault(
                "limits.body_buffer_bytes",
                value,
                reason,
                "lower it or raise the total",
            );
        }
        if timeouts.upstream_idle >= ENGINE_KEEP_ALIVE {
            let value = Some(format!("\"{}ms\"", timeouts.upstream_idle.as_millis()));
            let reason = "engines behind uvicorn close idle connections after 5 s";
            let remedy = "keep it below 5s unless yours keep them longer";
            self.warn("timeouts.upstream_idle", value, reason, remedy);
        }
        if health.connect_timeout > health.probe_timeout {
            let value = Some(format!("\"{}ms\"", health.connect_timeout.as_millis()));
            let remedy = "lower it or raise the other";
            self.fault(
                "health.connect_timeout",
                value,
                "longer than health.probe_timeout",
                remedy,
            );
        }
        if health.eject_time > health.eject_time_max {
            let value = Some(format!("\"{}ms\"", health.eject_time.as_millis()));
            let remedy = "lower it or raise the other";
            self.fault(
                "health.eject_time",
                value,
                "longer than health.eject_time_max",
                remedy,
            );
        }
        self.load_interval(&config.load);
        if !health.enabled && config.backends.len() > 1 {
            let reason = "a dead engine keeps getting requests";
            self.warn("health.enabled", Some("false".to_owned()), reason, "");
        }
    }
}

impl Check<'_> {
    /// Reports older than [`REPORT_AGE_MAX`] count as none, so they have to come faster than they age.
    fn load_interval(&mut self, load: &LoadConfig) {
        let value = Some(format!("\"{}ms\"", load.interval.as_millis()));
        if load.interval < LOAD_INTERVAL_MIN {
            let remedy = "write \"50ms\" or more";
            self.fault("load.interval", value, "engines would do little else", remedy);
        } else if load.enabled && load.interval >= REPORT_AGE_MAX {
            let reason = "reports older than 1 s count as unknown, so that most of the time none would count";
            self.warn("load.interval", value, reason, "keep it well below 1s");
        }
    }
}

/// Whether two listeners can't both be had.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same_ip
}

/// Whether a connection to `addr` arrives at the listener `at` of this process.
fn reaches(at: SocketAddr, addr: SocketAddr) -> bool {
    at == addr || (at.port() == addr.port() && at.ip().is_unspecified() && addr.ip().is_loopback())
}

fn quoted(value: &impl ToString) -> Option<String> {
    Some(format!("{:?}", value.to_string()))
}
