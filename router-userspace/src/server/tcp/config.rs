//! What the operator may set of one L4 listener, with its defaults.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::backend::BackendConfig;

/// What of a connection decides on its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpHash {
    /// The client's IP address.
    Source,
    /// The server name in the client's TLS hello; the address where there's none.
    Sni,
}

impl TcpHash {
    /// The word for it in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TcpHash::Source => "source",
            TcpHash::Sni => "sni",
        }
    }
}

/// The PROXY protocol header that backends get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// None.
    Off,
    /// The line of version 1.
    V1,
    /// The binary header of version 2.
    V2,
}

/// A range of IP addresses: those that share the first bits with a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    base: IpAddr,
    bits: u32,
}

impl IpRange {
    /// The range of the addresses whose first `bits` are those of `base`; `None` where `base` has bits beyond them, or
    /// `bits` is more than its family has. A range of IPv4 addresses in IPv6 form is one of IPv4 addresses.
    #[must_use]
    pub fn new(base: IpAddr, bits: u32) -> Option<IpRange> {
        if let (IpAddr::V6(_), inner @ IpAddr::V4(_), Some(bits)) =
            (base, base.to_canonical(), bits.checked_sub(96))
        {
            return IpRange::new(inner, bits);
        }
        let (width, number) = match base {
            IpAddr::V4(ip) => (32, u128::from(ip.to_bits())),
            IpAddr::V6(ip) => (128, ip.to_bits()),
        };
        let fits = bits <= width && low_bits(number, width - bits) == 0;
        fits.then_some(IpRange { base, bits })
    }

    /// Whether `ip` is in it; an IPv4 address in IPv6 form counts as IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.base, ip.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                low_bits(u128::from(base.to_bits() ^ ip.to_bits()) >> (32 - self.bits), 32) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                // A shift by the whole width isn't defined.
                self.bits == 0 || (base.to_bits() ^ ip.to_bits()) >> (128 - self.bits) == 0
            }
            _ => false,
        }
    }
}

fn low_bits(number: u128, count: u32) -> u128 {
    if count >= 128 {
        number
    } else {
        number & ((1 << count) - 1)
    }
}

/// One L4 listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// How it is called in logs and metrics: its first address where no name is given.
    pub name: String,
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// Where their connections go; names are unique.
    pub backends: Vec<BackendConfig>,
    /// What decides which of them.
    pub hash: TcpHash,
    /// A connection without a byte in either direction for this time is reset.
    pub idle: Duration,
    /// The time for what is read of a connection before its backend is chosen.
    pub hello: Duration,
    /// The header sent to backends in front of the client's bytes.
    pub proxy_header: ProxyHeader,
    /// Peers whose connections begin with a PROXY header.
    pub trusted_proxies: Vec<IpRange>,
}

/// Backends that one listener may have.
pub const TCP_BACKENDS_MAX: usize = super::maglev::MEMBERS_MAX;

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            name: String::new(),
            listen: Vec::new(),
            backends: Vec::new(),
            hash: TcpHash::Source,
            idle: Duration::from_secs(600),
            hello: Duration::from_secs(5),
            proxy_header: ProxyHeader::Off,
            trusted_proxies: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(base: &str, bits: u32) -> IpRange {
        IpRange::new(base.parse().expect("an address"), bits).expect("a range")
    }

    #[test]
    fn ranges_hold_their_ends_and_nothing_beyond() {
        for (base, bits, inside, outside) in [
            (
                "10.0.0.0",
                8,
                ["10.0.0.0", "10.255.255.255"],
                ["9.255.255.255", "11.0.0.0"],
            ),
            (
                "10.1.2.3",
                32,
                ["10.1.2.3", "::ffff:10.1.2.3"],
                ["10.1.2.2", "::10.1.2.3"],
            ),
            ("0.0.0.0", 0, ["0.0.0.0", "255.255.255.255"], ["::", "::1"]),
            ("fd00::", 8, ["fd00::", "fdff::1"], ["fc00::", "fe00::"]),
            (
                "::ffff:10.0.0.0",
                104,
                ["10.0.0.0", "10.255.255.255"],
                ["11.0.0.0", "::"],
            ),
            ("::1", 128, ["::1", "::1"], ["::2", "127.0.0.1"]),
            ("::", 0, ["::", "ffff::"], ["10.0.0.1", "::ffff:10.0.0.1"]),
        ] {
            let range = range(base, bits);
            for ip in inside {
                assert!(
                    range.contains(ip.parse().expect("an address")),
                    "{ip} in {base}/{bits}"
                );
            }
            for ip in outside {
                assert!(
                    !range.contains(ip.parse().expect("an address")),
                    "{ip} not in {base}/{bits}"
                );
            }
        }
    }

    #[test]
    fn bits_beyond_the_prefix_or_the_family_make_no_range() {
        for (base, bits) in [
            ("10.0.0.1", 8),
            ("10.0.0.0", 33),
            ("fd00::1", 64),
            ("::", 129),
            ("0.0.0.1", 0),
        ] {
            assert_eq!(
                IpRange::new(base.parse().expect("an address"), bits),
                None,
                "{base}/{bits}"
            );
        }
    }

    proptest! {
        #[test]
        fn membership_is_equality_of_the_first_bits(base in any::<u32>(), bits in 0u32..=32, ip in any::<u32>()) {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            let range = IpRange::new(IpAddr::V4((base & mask).into()), bits).expect("a range");
            let near = (base & mask) | (ip & !mask);
            for ip in [ip, near] {
                prop_assert_eq!(range.contains(IpAddr::V4(ip.into())), ip & mask == base & mask);
            }
        }
    }
}
