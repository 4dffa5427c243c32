//! The `[[tcp]]` sections: L4 listeners, each with backends of its own.

use std::net::IpAddr;

use toml::{Table, Value};

use super::endpoint::{Resolve, host_port};
use super::fault::Complaint;
use super::section::{Reading, Section};
use super::sections::backend_name;
use super::value::{choice, duration, integer, listen_addr, one_or_more, text};
use crate::backend::{BackendConfig, MAX_WAITING_DEFAULT};
use crate::server::{IpRange, ProxyHeader, TCP_BACKENDS_MAX, TcpConfig, TcpHash};

/// L4 listeners that may be configured.
const LISTENERS_MAX: usize = 256;

const HASHES: &[(&str, TcpHash)] = &[("source", TcpHash::Source), ("sni", TcpHash::Sni)];

const HEADERS: &[(&str, ProxyHeader)] = &[
    ("off", ProxyHeader::Off),
    ("v1", ProxyHeader::V1),
    ("v2", ProxyHeader::V2),
];

/// Reads every `[[tcp]]` section.
pub(super) fn read(reading: &mut Reading, tables: Vec<Table>, resolve: Resolve<'_>) -> Vec<TcpConfig> {
    if too_many(reading, "tcp", tables.len(), LISTENERS_MAX) {
        return Vec::new();
    }
    let mut listeners = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        listeners.extend(listener(reading, index, table, resolve));
    }
    listeners
}

fn too_many(reading: &mut Reading, key: &str, count: usize, max: usize) -> bool {
    if count > max {
        let reason = format!("{count} of them, over the {max} supported");
        reading.fault(key, None, Complaint::new(reason, "remove some"));
    }
    count > max
}

/// One section; `None` where it has nowhere to listen or a backend without a place, which are faults.
fn listener(reading: &mut Reading, index: usize, table: Table, resolve: Resolve<'_>) -> Option<TcpConfig> {
    let path = format!("tcp[{index}]");
    let mut config = TcpConfig::default();
    let mut section = Section::new(reading, path.clone(), "tcp[]", table);
    let given = section.take("listen");
    let listen = match &given {
        Some(value) => one_or_more(listen_addr)(value),
        None => Err(Complaint::new("missing", "write listen = \"IP:PORT\"")),
    };
    match listen {
        Ok(listen) => config.listen = listen,
        Err(complaint) => section.fault("listen", given.as_ref(), complaint),
    }
    let name = section.optional("name", backend_name);
    section.set("hash", &mut config.hash, choice(HASHES));
    section.set("idle_timeout", &mut config.idle, duration);
    section.set("hello_timeout", &mut config.hello, duration);
    section.set("proxy_protocol", &mut config.proxy_header, choice(HEADERS));
    section.set("trusted_proxies", &mut config.trusted_proxies, ranges);
    let backends = section.tables("backend");
    if backends.is_empty() {
        let remedy = "add a [[tcp.backend]] section with addr = \"HOST:PORT\"";
        section.fault("backend", None, Complaint::new("none given", remedy));
    }
    section.finish();
    if !too_many(
        reading,
        &format!("{path}.backend"),
        backends.len(),
        TCP_BACKENDS_MAX,
    ) {
        for (place, table) in backends.into_iter().enumerate() {
            let path = format!("{path}.backend[{place}]");
            let section = Section::new(reading, path, "tcp[].backend[]", table);
            config.backends.extend(backend(section, resolve));
        }
    }
    let first = config.listen.first()?;
    config.name = name.unwrap_or_else(|| first.to_string());
    Some(config)
}

fn backend(mut section: Section<'_>, resolve: Resolve<'_>) -> Option<BackendConfig> {
    let given = section.take("addr");
    let place = match &given {
        Some(value) => host_port(resolve)(value),
        None => Err(Complaint::new("missing", "write addr = \"HOST:PORT\"")),
    };
    let place = place
        .map_err(|complaint| section.fault("addr", given.as_ref(), complaint))
        .ok();
    let name = section.optional("name", backend_name);
    let mut weight = 1;
    section.set("weight", &mut weight, integer(1..=1000));
    section.finish();
    let place = place?;
    Some(BackendConfig {
        name: name.unwrap_or(place.authority),
        addr: place.addr,
        weight,
        // Connections have no limit and report nothing.
        max_in_flight: None,
        max_waiting: MAX_WAITING_DEFAULT,
    })
}

/// A list, possibly empty, of IP addresses and ranges.
fn ranges(value: &Value) -> Result<Vec<IpRange>, Complaint> {
    let remedy = "write [\"10.0.0.0/8\", \"fd00::/8\"] or []";
    match value {
        Value::Array(list) => list.iter().map(range).collect(),
        _ => Err(Complaint::new("not a list", remedy)),
    }
}

fn range(value: &Value) -> Result<IpRange, Complaint> {
    let written = text(value)?;
    let (ip, bits) = match written.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits)),
        None => (&written[..], None),
    };
    let none = || {
        let remedy = "write an IP address, or one with its number of fixed bits such as 10.0.0.0/8";
        Complaint::new(format!("{written} is no range of IP addresses"), remedy)
    };
    let ip: IpAddr = ip.parse().map_err(|_| none())?;
    let width = if ip.is_ipv4() { 32 } else { 128 };
    let bits: u32 = bits.map_or(Ok(width), str::parse).map_err(|_| none())?;
    if bits > width {
        return Err(none());
    }
    IpRange::new(ip, bits).ok_or_else(|| {
        let reason = format!("{written} has bits beyond its first {bits}");
        Complaint::new(reason, format!("set them to 0, or write {ip} for one address"))
    })
}
