//! Which addresses a job's request may go to (J7).
//!
//! Whoever may define a job could otherwise have the server ask what only the server reaches: itself, the machines beside it,
//! and the service that hands out a cloud machine's credentials. So internal addresses are refused unless the server's
//! configuration allows them, and what is looked at is the address that is connected to, never the name: a name may mean
//! another address the next time it is looked up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Something that is allowed although it is internal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Wherever this name leads.
    Host {
        /// In lower case.
        host: String,
        /// All of them if absent.
        port: Option<u16>,
    },
    /// Every address of a network.
    Network {
        /// An address in it.
        address: IpAddr,
        /// Bits that all of its addresses share.
        bits: u8,
    },
}

/// What `--job-allow` can't be read with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is neither HOST, HOST:PORT nor a network like 10.1.0.0/16")]
pub struct NotAllowed(String);

impl FromStr for Allowed {
    type Err = NotAllowed;

    fn from_str(text: &str) -> Result<Self, NotAllowed> {
        let wrong = || NotAllowed(text.to_owned());
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?;
            return Ok(Self::Network { address, bits });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Host { host: address.to_string(), port: None });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Host { host: address.ip().to_string(), port: Some(address.port()) });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(wrong());
        }
        Ok(Self::Host { host: host.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port: None } => f.write_str(host),
            Self::Host { host, port: Some(port) } => write!(f, "{host}:{port}"),
            Self::Network { address, bits } => write!(f, "{address}/{bits}"),
        }
    }
}

impl Allowed {
    fn covers(&self, host: &str, address: SocketAddr) -> bool {
        match self {
            Self::Host { host: allowed, port } => {
                let is_it = allowed.eq_ignore_ascii_case(host) || *allowed == address.ip().to_string();
                is_it && port.is_none_or(|port| port == address.port())
            }
            Self::Network { address: network, bits } => shares(*network, address.ip(), *bits),
        }
    }
}

/// Whether two addresses begin with the same bits.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let same = |one: u128, other: u128, width: u32| {
        u32::from(bits) == 0 || (one ^ other) >> (width - u32::from(bits)) == 0
    };
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => same(one.to_bits().into(), other.to_bits().into(), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
        _ => false,
    }
}

/// Whether a request to `host` may be sent to `address`, which is what that name leads to now.
pub fn may_connect(allowed: &[Allowed], host: &str, address: SocketAddr) -> bool {
    let plain = SocketAddr::new(address.ip().to_canonical(), address.port());
    !is_internal(plain.ip()) || allowed.iter().any(|allowed| allowed.covers(host, plain))
}

/// Whether an address is one that the whole world doesn't reach.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_internal_v4(address),
        IpAddr::V6(address) => is_internal_v6(address),
    }
}

fn is_internal_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    // This network, carriers' own, protocol assignments, benchmarks, and what is reserved.
    let is_special = first == 0
        || (first == 100 && second & 0xc0 == 64)
        || (first, second, third) == (192, 0, 0)
        || (first == 198 && second & 0xfe == 18)
        || first >= 240;
    // Clouds answer with credentials at link-local addresses.
    is_special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
}

fn is_internal_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // Addresses of the other family are in these: translated, tunnelled, or written in the old way.
    let inner = match parts {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = inner {
        return is_internal_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    // Only what is handed out to the world is the world's; of that, examples and tunnels aren't.
    let is_global = parts[0] & 0xe000 == 0x2000;
    !is_global || (parts[0] == 0x2001 && (parts[1] == 0xdb8 || parts[1] < 0x200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(allowed: &[&str], host: &str, address: &str) -> bool {
        let allowed: Vec<Allowed> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        may_connect(&allowed, host, address.parse().unwrap())
    }

    #[test]
    fn an_internal_address_is_refused_however_it_is_written() {
        for address in [
            "127.0.0.1:80",
            "127.8.9.1:80",
            "10.0.0.1:80",
            "172.16.3.4:80",
            "172.31.3.4:80",
            "192.168.1.1:80",
            "169.254.169.254:80",
            "100.64.0.1:80",
            "100.127.0.1:80",
            "0.0.0.0:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "192.0.0.192:80",
            "198.19.0.1:80",
            "[::]:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:169.254.169.254]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[2002:7f00:1::]:80",
            "[fe80::1]:80",
            "[fd00:ec2::254]:80",
            "[fc00::1]:80",
            "[ff02::1]:80",
            "[2001:db8::1]:80",
            "[2001::1]:80",
        ] {
            assert!(!may(&[], "example.org", address), "{address}");
        }
        for address in [
            "93.184.215.14:443",
            "172.32.0.1:80",
            "100.128.0.1:80",
            "[2606:2800:21f::1]:443",
            "[64:ff9b::808:808]:1",
        ] {
            assert!(may(&[], "example.org", address), "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_allowed_and_nothing_beside_it() {
        assert!(may(&["127.0.0.1:8080"], "127.0.0.1", "127.0.0.1:8080"));
        assert!(!may(&["127.0.0.1:8080"], "127.0.0.1", "127.0.0.1:8081"));
        assert!(may(&["127.0.0.1:8080"], "localhost", "127.0.0.1:8080"));
        assert!(may(&["hooks.internal"], "Hooks.Internal", "10.1.2.3:80"));
        assert!(!may(&["hooks.internal"], "other.internal", "10.1.2.3:80"));
        assert!(may(&["10.1.0.0/16"], "x", "10.1.255.3:80"));
        assert!(!may(&["10.1.0.0/16"], "x", "10.2.0.3:80"));
        assert!(may(&["10.1.0.0/16"], "x", "[::ffff:10.1.2.3]:80"));
        assert!(may(&["fd00:1::/32"], "x", "[fd00:1:2::3]:80"));
        assert!(!may(&["fd00:1::/32"], "x", "[fd00:2::3]:80"));
        assert!(may(&["0.0.0.0/0"], "x", "127.0.0.1:1"));
        assert!(!may(&["0.0.0.0/0"], "x", "[::1]:1"));
        assert!(may(&["::1"], "localhost", "[::1]:9"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_the_rest_reads_as_it_was_written() {
        for wrong in ["", "a b", "10.0.0.0/33", "::/129", "x/8", "host:port", "host:70000", "http://host"] {
            assert!(wrong.parse::<Allowed>().is_err(), "{wrong:?}");
        }
        for right in ["localhost", "localhost:80", "10.0.0.0/8", "fd00::/8", "::1", "127.0.0.1:9"] {
            assert_eq!(right.parse::<Allowed>().unwrap().to_string(), right);
        }
    }
}
