//! Where a backend is: `http://host:port` or `host:port`, and the look-up of its name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use toml::Value;

use super::fault::Complaint;
use super::value::text;

/// Looks a host name up; a parameter, so that tests need no name server.
pub type Resolve<'r> = &'r dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The look-up of this host (files, DNS).
///
/// # Errors
/// What the system's resolver says.
pub fn resolve_by_system(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// A backend's place: what the operator wrote and the address behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `host:port`.
    pub(super) authority: String,
    pub(super) addr: SocketAddr,
}

/// Reads `http://host:port`.
pub(super) fn url(resolve: Resolve<'_>) -> impl FnOnce(&Value) -> Result<Endpoint, Complaint> {
    move |value| {
        let written = text(value)?;
        let Some((scheme, rest)) = written.split_once("://") else {
            // A bare host:port on the command line is clear enough to be obeyed.
            return endpoint(&written, resolve);
        };
        match scheme {
            "http" => {}
            "https" => {
                return Err(Complaint::new(
                    "https to a backend isn't supported yet",
                    "write http://HOST:PORT",
                ));
            }
            _ => return Err(Complaint::new("unknown scheme", "write http://HOST:PORT")),
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            let place = authority.split(['/', '?', '#']).next().unwrap_or_default();
            return Err(Complaint::new(
                "has a path, but requests keep their own",
                format!("write http://{place}"),
            ));
        }
        endpoint(authority, resolve)
    }
}

/// Reads `host:port`.
pub(super) fn host_port(resolve: Resolve<'_>) -> impl FnOnce(&Value) -> Result<Endpoint, Complaint> {
    move |value| {
        let written = text(value)?;
        if written.contains("://") {
            return Err(Complaint::new(
                "a URL, not an address",
                format!("write url = \"{written}\""),
            ));
        }
        endpoint(&written, resolve)
    }
}

fn endpoint(authority: &str, resolve: Resolve<'_>) -> Result<Endpoint, Complaint> {
    if authority.contains('@') {
        return Err(Complaint::new("has a user name", "write only HOST:PORT"));
    }
    let (host, port) = split(authority)?;
    let addr = match ip(host) {
        Some(ip) => SocketAddr::new(ip, port),
        None => look_up(host, port, resolve)?,
    };
    if addr.ip().is_unspecified() {
        let remedy = format!("write 127.0.0.1:{port} for an engine on this host");
        return Err(Complaint::new("no host's address", remedy));
    }
    let authority = authority.to_owned();
    Ok(Endpoint { authority, addr })
}

fn ip(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn split(authority: &str) -> Result<(&str, u16), Complaint> {
    let missing = |host: &str| Complaint::new("port missing", format!("write {host}:8000"));
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Err(missing(&format!("[{authority}]")));
    }
    if authority.ends_with(']') {
        return Err(missing(authority));
    }
    let Some((host, digits)) = authority.rsplit_once(':') else {
        return Err(missing(authority));
    };
    if host.is_empty() {
        let remedy = format!("write 127.0.0.1:{digits} for an engine on this host");
        return Err(Complaint::new("host missing", remedy));
    }
    if digits.is_empty() {
        return Err(missing(host));
    }
    match digits.parse::<u16>() {
        Ok(port) if port != 0 => Ok((host, port)),
        _ => Err(Complaint::new(
            "its port isn't 1 to 65535",
            format!("write {host}:8000"),
        )),
    }
}

fn look_up(host: &str, port: u16, resolve: Resolve<'_>) -> Result<SocketAddr, Complaint> {
    let named = host
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if !named {
        return Err(Complaint::new("not a host name", format!("write HOST:{port}")));
    }
    let remedy = "check the name, or write the engine's IP address";
    match resolve(host, port) {
        Ok(addrs) => addrs
            .first()
            .copied()
            .ok_or_else(|| Complaint::new(format!("{host} has no address"), remedy)),
        Err(error) => Err(Complaint::new(
            format!("{host} can't be resolved ({error})"),
            remedy,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &str) -> Result<Endpoint, Complaint> {
        let resolve = |host: &str, port| match host {
            "engine-1" => Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]),
            _ => Err(io::Error::other("no such name")),
        };
        url(&resolve)(&Value::String(written.to_owned()))
    }

    #[test]
    fn urls_and_bare_addresses_give_the_same_endpoint() {
        for written in ["http://10.0.0.1:8000", "http://10.0.0.1:8000/", "10.0.0.1:8000"] {
            let endpoint = read(written).expect(written);
            assert_eq!(endpoint.addr, SocketAddr::from(([10, 0, 0, 1], 8000)));
            assert_eq!(endpoint.authority, "10.0.0.1:8000");
        }
        let six = read("http://[::1]:8000").expect("IPv6");
        assert_eq!(six.addr, SocketAddr::from((Ipv6Addr::LOCALHOST, 8000)));
        let named = read("http://engine-1:8000").expect("name");
        assert_eq!(named.authority, "engine-1:8000");
        assert_eq!(named.addr, SocketAddr::from(([10, 0, 0, 1], 8000)));
    }

    #[test]
    fn each_wrong_place_says_what_to_write() {
        let cases = [
            ("10.0.0.5", "port missing", "write 10.0.0.5:8000"),
            ("::1", "port missing", "write [::1]:8000"),
            ("http://[::1]", "port missing", "write [::1]:8000"),
            ("10.0.0.5:", "port missing", "write 10.0.0.5:8000"),
            ("10.0.0.5:0", "its port isn't 1 to 65535", "write 10.0.0.5:8000"),
            (
                ":8000",
                "host missing",
                "write 127.0.0.1:8000 for an engine on this host",
            ),
            (
                "0.0.0.0:80",
                "no host's address",
                "write 127.0.0.1:80 for an engine on this host",
            ),
            (
                "https://a:1",
                "https to a backend isn't supported yet",
                "write http://HOST:PORT",
            ),
            ("ftp://a:1", "unknown scheme", "write http://HOST:PORT"),
            (
                "http://a:1/v1",
                "has a path, but requests keep their own",
                "write http://a:1",
            ),
            ("http://u@a:1", "has a user name", "write only HOST:PORT"),
            ("a b:1", "not a host name", "write HOST:1"),
        ];
        for (written, reason, remedy) in cases {
            let complaint = read(written).expect_err(written);
            assert_eq!(complaint.reason, reason, "{written}");
            assert_eq!(complaint.remedy, remedy, "{written}");
        }
        let complaint = read("nowhere:1").expect_err("unresolvable");
        assert_eq!(complaint.reason, "nowhere can't be resolved (no such name)");
    }
}
