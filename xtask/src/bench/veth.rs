//! Three network namespaces in a row: the source's, the proxies', the sink's, joined by veth pairs.
//!
//! Loopback spares the proxies what a network card's queue costs; a veth pair is nearer to it, and the direct run is
//! then forwarded by the middle namespace.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::Result;

use crate::process;

/// The middle namespace's address towards the sink: where proxies listen.
const PROXY: Ipv4Addr = Ipv4Addr::new(10, 203, 2, 1);
/// The source's address.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 203, 1, 2);

/// Who runs in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The source.
    Source,
    /// The proxies.
    Proxy,
    /// The sink.
    Sink,
}

/// Where everything runs.
#[derive(Debug)]
pub(super) enum Net {
    /// On the loopback of this host.
    Loopback,
    /// In namespaces of their own, named after this process; removed on drop.
    Veth(String),
}

impl Net {
    /// Makes the namespaces.
    ///
    /// # Errors
    /// Where `ip` (iproute2) isn't there or may not.
    pub(super) fn veth() -> Result<Net> {
        let net = Net::Veth(format!("wpb{}", std::process::id()));
        let (source, proxy, sink) = (
            net.name(Side::Source),
            net.name(Side::Proxy),
            net.name(Side::Sink),
        );
        for name in [&source, &proxy, &sink] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        for (outer, inside, subnet) in [(&source, "upstream", 1), (&sink, "downstream", 2)] {
            ip(&format!(
                "-n {proxy} link add {inside} type veth peer name eth netns {outer}"
            ))?;
            ip(&format!("-n {proxy} addr add 10.203.{subnet}.1/24 dev {inside}"))?;
            ip(&format!("-n {outer} addr add 10.203.{subnet}.2/24 dev eth"))?;
            ip(&format!("-n {proxy} link set {inside} up"))?;
            ip(&format!("-n {outer} link set eth up"))?;
            ip(&format!("-n {outer} route add default via 10.203.{subnet}.1"))?;
        }
        let forward = ["netns", "exec", &proxy, "sysctl", "-qw", "net.ipv4.ip_forward=1"];
        process::output(Command::new("ip").args(forward))?;
        Ok(net)
    }

    fn name(&self, side: Side) -> String {
        match self {
            Net::Loopback => String::new(),
            Net::Veth(stem) => format!("{stem}{side:?}").to_lowercase(),
        }
    }

    /// `program`, to run on that side.
    pub(super) fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self {
            Net::Loopback => Command::new(program),
            Net::Veth(_) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &self.name(side)]).arg(program);
                command
            }
        }
    }

    /// Where the source listens.
    pub(super) fn source(&self) -> IpAddr {
        match self {
            Net::Loopback => Ipv4Addr::LOCALHOST.into(),
            Net::Veth(_) => SOURCE.into(),
        }
    }

    /// Where proxies listen.
    pub(super) fn proxy(&self) -> IpAddr {
        match self {
            Net::Loopback => Ipv4Addr::LOCALHOST.into(),
            Net::Veth(_) => PROXY.into(),
        }
    }

    /// For captions.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Net::Loopback => "loopback",
            Net::Veth(_) => "three namespaces joined by veth pairs",
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if matches!(self, Net::Veth(_)) {
            for side in [Side::Source, Side::Proxy, Side::Sink] {
                // One that wasn't made can't be removed.
                let _ = ip(&format!("netns del {}", self.name(side)));
            }
        }
    }
}

fn ip(words: &str) -> Result<String> {
    process::output(Command::new("ip").args(words.split_whitespace()))
}
