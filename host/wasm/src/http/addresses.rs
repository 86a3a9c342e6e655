//! What names stand for: addresses of private networks are left out, so that no name leads to what the pipeline file did
//! not mean. Called by the HTTP client for every connection.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Resolves names to public addresses, and some names to any.
#[derive(Debug)]
pub(super) struct PublicAddresses {
    /// The names that may stand for private addresses.
    pub(super) private: Arc<BTreeSet<String>>,
}

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        let private = Arc::clone(&self.private);
        Box::pin(async move {
            let name = name.as_str();
            let found = tokio::net::lookup_host((name, 0)).await?;
            let may_be_private = private.contains(name);
            let kept: Vec<SocketAddr> =
                found.filter(|address| may_be_private || !is_private(address.ip())).collect();
            if kept.is_empty() {
                return Err(format!(
                    "'{name}' has no address outside of private networks; if it is meant, list it under http_private"
                )
                .into());
            }
            Ok::<Addrs, Box<dyn std::error::Error + Send + Sync>>(Box::new(kept.into_iter()))
        })
    }
}

/// Whether an address is not one of the public internet.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(address) => is_private_v4(address),
            None => is_private_v6(address),
        },
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b))
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    // Of the public internet are those of 2000::/3 alone; 2001:db8::/32 is for documentation, 2001::/32 is Teredo.
    first & 0xe000 != 0x2000 || (first == 0x2001 && matches!(address.segments()[1], 0 | 0x0db8))
}

/// The IPv4 address that an IPv6 address leads to: mapped, NAT64 or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(from(high, low)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_are_told_from_those_outside() {
        let private = |text: &str| is_private(text.parse().expect("an address"));
        for inside in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(private(inside), "{inside}");
        }
        for outside in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "172.32.0.1"] {
            assert!(!private(outside), "{outside}");
        }
    }
}
