//! Divides source addresses into allowed and denied networks, according to a route's address
//! filters.
//!
//! Filter chains select connections by source. Envoy's RBAC filter is not used, because it decides
//! only when the client sends the first byte. By then, the TCP proxy has connected to the backend,
//! which may already have sent data to the client.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::listener::v3::FilterChainMatch;
use sesame_proto::network::Network;
use sesame_proto::schema::{AddressFilter, AddressRange};

use crate::wrappers;

/// Matches for the filter chains of a route. At most one applies to each connection.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SourceMatches {
    /// `None` if all sources are denied.
    pub(crate) allowed: Option<FilterChainMatch>,
    /// Each with a suffix for the chain's name. Other sources match no chain, so Envoy closes their
    /// connections.
    pub(crate) denied: Vec<(&'static str, FilterChainMatch)>,
}

impl SourceMatches {
    pub(crate) fn new(filters: &[AddressFilter]) -> Result<Self, String> {
        let (peer_filters, client_filters) = by_address_kind(filters)?;
        let (peers, clients) = (divide(&peer_filters)?, divide(&client_filters)?);
        let (Some(peers_allowed), Some(clients_allowed)) = (peers.allowed, clients.allowed) else {
            return Ok(Self::none());
        };
        let client_names = ["denied", "denied-within"];
        let denied_clients = client_names.into_iter().zip(clients.denied);
        let denied_clients = denied_clients.filter_map(|(name, clients)| {
            let peers = peers_allowed.clone();
            Some((name, matching(peers, clients?)))
        });
        let peer_names = ["denied-peer", "denied-peer-within"];
        let denied_peers = peer_names.into_iter().zip(peers.denied);
        let denied_peers =
            denied_peers.filter_map(|(name, peers)| Some((name, matching(peers?, Vec::new()))));
        Ok(Self {
            denied: denied_clients.chain(denied_peers).collect(),
            allowed: Some(matching(peers_allowed, clients_allowed)),
        })
    }

    /// Denies all sources.
    pub(crate) fn none() -> Self {
        Self {
            allowed: None,
            denied: vec![("denied", FilterChainMatch::default())],
        }
    }
}

fn matching(peers: Vec<CidrRange>, clients: Vec<CidrRange>) -> FilterChainMatch {
    FilterChainMatch {
        direct_source_prefix_ranges: peers,
        source_prefix_ranges: clients,
        ..Default::default()
    }
}

/// Returns filters of peer addresses, then filters of client addresses.
fn by_address_kind(
    filters: &[AddressFilter],
) -> Result<(Vec<&AddressFilter>, Vec<&AddressFilter>), String> {
    for filter in filters {
        let AddressFilter { name, allow, deny } = filter;
        let mut ranges = allow.iter().chain(deny);
        let Some(first) = ranges.next() else {
            return Err(format!("`{name}`: an address filter has no networks"));
        };
        if ranges.any(|range| range.peer != first.peer) {
            return Err(format!(
                "`{name}`: an address filter mixes client and peer addresses"
            ));
        }
    }
    let is_of_peers = |filter: &&AddressFilter| {
        let mut ranges = filter.allow.iter().chain(&filter.deny);
        ranges.any(|range| range.peer)
    };
    Ok(filters.iter().partition(is_of_peers))
}

/// The most specific network in any list decides. An empty list matches all addresses that no other
/// list matches.
#[derive(Debug, PartialEq)]
struct Divided {
    allowed: Option<Vec<CidrRange>>,
    /// The first is an empty list if all addresses are denied by default. The second contains the
    /// denied networks inside allowed networks.
    denied: [Option<Vec<CidrRange>>; 2],
}

/// Ordered so that a network precedes the networks that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    is_v6: bool,
    address: u128,
    bits: u8,
}

impl Prefix {
    /// All IPv4 and all IPv6 addresses.
    const ALL: [Self; 2] = [Self::all(false), Self::all(true)];

    const fn all(is_v6: bool) -> Self {
        Self {
            is_v6,
            address: 0,
            bits: 0,
        }
    }

    fn new(network: Network) -> Self {
        let (is_v6, address) = match network.address() {
            IpAddr::V4(address) => (false, u128::from(u32::from(address))),
            IpAddr::V6(address) => (true, u128::from(address)),
        };
        Self {
            is_v6,
            address,
            bits: network.bits(),
        }
        .widened(network.bits())
    }

    fn widened(self, bits: u8) -> Self {
        let width = if self.is_v6 { 128 } else { 32_u32 };
        let rest = width.saturating_sub(u32::from(bits));
        let prefix = self.address.checked_shr(rest).unwrap_or(0);
        Self {
            address: prefix.checked_shl(rest).unwrap_or(0),
            bits,
            ..self
        }
    }

    fn contains(self, other: Self) -> bool {
        self.bits <= other.bits && other.widened(self.bits) == self
    }

    fn to_range(self) -> CidrRange {
        let address = if self.is_v6 {
            IpAddr::V6(Ipv6Addr::from(self.address))
        } else {
            // An IPv4 prefix has at most 32 bits.
            let address = u32::try_from(self.address).unwrap_or(u32::MAX);
            IpAddr::V4(Ipv4Addr::from(address))
        };
        CidrRange {
            address_prefix: address.to_string(),
            prefix_len: wrappers::uint32(self.bits.into()),
        }
    }
}

pub(crate) fn range(network: &str) -> Result<CidrRange, String> {
    let network: Network = network.parse()?;
    Ok(Prefix::new(network).to_range())
}

/// Number of entries in a filter's lists that contain the current network.
#[derive(Clone, Copy, Default)]
struct Listed {
    allow: usize,
    deny: usize,
}

/// A network, the filters that list it, and whether its addresses pass.
type Surrounding<'e> = (Prefix, &'e [(usize, bool)], bool);

fn divide(filters: &[&AddressFilter]) -> Result<Divided, String> {
    let mut entries: BTreeMap<Prefix, Vec<(usize, bool)>> =
        Prefix::ALL.map(|prefix| (prefix, Vec::new())).into();
    for (i, AddressFilter { name, allow, deny }) in filters.iter().enumerate() {
        let lists = [(allow, false), (deny, true)];
        for (AddressRange { network, peer: _ }, denies) in lists
            .into_iter()
            .flat_map(|(list, denies)| list.iter().map(move |it| (it, denies)))
        {
            let network: Network = network.parse().map_err(|why| format!("`{name}`: {why}"))?;
            entries
                .entry(Prefix::new(network))
                .or_default()
                .push((i, denies));
        }
    }
    let mut counts = vec![Listed::default(); filters.len()];
    let mut around: Vec<Surrounding<'_>> = Vec::new();
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for (prefix, own) in &entries {
        while let Some((_, left, _)) = around.pop_if(|(outer, ..)| !outer.contains(*prefix)) {
            count(&mut counts, left, |listed| listed.saturating_sub(1));
        }
        count(&mut counts, own, |listed| listed.saturating_add(1));
        let passes = filters.iter().zip(&counts).all(|(filter, listed)| {
            (filter.allow.is_empty() || listed.allow > 0) && listed.deny == 0
        });
        let is_new = around.last().is_none_or(|(.., outer)| *outer != passes);
        if is_new {
            let list = if passes { &mut allowed } else { &mut denied };
            list.push(*prefix);
        }
        around.push((*prefix, own.as_slice(), passes));
    }
    Ok(divided(&allowed, &denied))
}

fn count(counts: &mut [Listed], entries: &[(usize, bool)], change: impl Fn(usize) -> usize) {
    for (filter, denies) in entries {
        if let Some(Listed { allow, deny }) = counts.get_mut(*filter) {
            let listed = if *denies { deny } else { allow };
            *listed = change(*listed);
        }
    }
}

/// Avoids naming all IPv6 addresses explicitly, because Envoy rejects that on hosts without IPv6.
fn divided(allowed: &[Prefix], denied: &[Prefix]) -> Divided {
    let ranges = |list: &[Prefix]| list.iter().map(|prefix| prefix.to_range()).collect();
    let is_default_denied = Prefix::ALL.iter().all(|prefix| denied.contains(prefix));
    let within: Vec<Prefix> = denied.iter().filter(|it| it.bits > 0).copied().collect();
    Divided {
        allowed: match allowed {
            [] => None,
            all if all == Prefix::ALL => Some(Vec::new()),
            some => Some(ranges(some)),
        },
        denied: [
            is_default_denied.then(Vec::new),
            (!within.is_empty()).then(|| ranges(&within)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allow: &[&str], deny: &[&str], peer: bool) -> AddressFilter {
        let ranges = |list: &[&str]| {
            let ranges = list.iter().map(|&network| AddressRange {
                network: network.to_owned(),
                peer,
            });
            ranges.collect()
        };
        AddressFilter {
            name: "AccessPolicy/ns/p".to_owned(),
            allow: ranges(allow),
            deny: ranges(deny),
        }
    }

    fn text(ranges: &[CidrRange]) -> Vec<String> {
        let range = |it: &CidrRange| {
            let bits = it.prefix_len.as_ref().map_or(0, |it| it.value);
            format!("{}/{bits}", it.address_prefix)
        };
        ranges.iter().map(range).collect()
    }

    /// Returns true if the most specific network that contains the address is allowed.
    fn passes(matches: &SourceMatches, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let specificity = |ranges: &[CidrRange]| {
            if ranges.is_empty() {
                return Some(0);
            }
            let networks = text(ranges);
            let networks = networks.iter().map(|it| it.parse::<Network>().unwrap());
            let holding = networks.filter(|it| it.holds(address));
            holding.map(|it| it.bits()).max()
        };
        let allowed = matches.allowed.as_ref();
        let allowed = allowed.and_then(|it| specificity(&it.source_prefix_ranges));
        let denied = matches.denied.iter();
        let denied = denied.filter_map(|(_, it)| specificity(&it.source_prefix_ranges));
        let denied = denied.max();
        assert!(
            allowed.is_none() || allowed != denied,
            "ambiguous: {matches:?}"
        );
        allowed > denied
    }

    #[test]
    fn source_passes_if_every_filter_allows_it() {
        let lists: [&[&str]; 5] = [
            &[],
            &["10.0.0.0/8"],
            &["10.1.2.3/16", "2001:db8::/32"],
            &["0.0.0.0/0", "2001:db8:1::/48"],
            &["10.1.2.0/24", "10.1.0.0/16", "::/0"],
        ];
        let addresses = [
            "10.1.2.3",
            "10.1.3.1",
            "10.2.0.1",
            "192.0.2.1",
            "2001:db8:1::1",
            "::1",
        ];
        let pairs: Vec<(usize, usize)> = (0..5).flat_map(|a| (0..5).map(move |d| (a, d))).collect();
        let some = pairs.iter().filter(|it| **it != (0, 0));
        for first in some.clone() {
            for second in some.clone() {
                let filters = [first, second].map(|(a, d)| filter(lists[*a], lists[*d], false));
                let matches = SourceMatches::new(&filters).unwrap();
                for address in addresses {
                    let ip: IpAddr = address.parse().unwrap();
                    let holds = |list: &[AddressRange]| {
                        let mut list = list.iter();
                        list.any(|it| it.network.parse::<Network>().unwrap().holds(ip))
                    };
                    let expected = filters
                        .iter()
                        .all(|it| !holds(&it.deny) && (it.allow.is_empty() || holds(&it.allow)));
                    assert_eq!(passes(&matches, address), expected, "{address} {filters:?}");
                }
            }
        }
    }

    #[test]
    fn peer_and_client_filters_must_both_pass() {
        let filters = [
            filter(&["192.0.2.0/24"], &[], true),
            filter(&[], &["10.0.0.0/8"], false),
        ];
        let SourceMatches { allowed, denied } = SourceMatches::new(&filters).unwrap();
        let allowed = allowed.unwrap();
        assert_eq!(text(&allowed.direct_source_prefix_ranges), ["192.0.2.0/24"]);
        assert!(allowed.source_prefix_ranges.is_empty());
        let denied: Vec<_> = denied
            .iter()
            .map(|(name, it)| {
                let [peers, clients] = [&it.direct_source_prefix_ranges, &it.source_prefix_ranges]
                    .map(|it| text(it).join(" "));
                (*name, peers, clients)
            })
            .collect();
        let text = str::to_owned;
        assert_eq!(
            denied,
            [
                ("denied-within", text("192.0.2.0/24"), text("10.0.0.0/8")),
                ("denied-peer", text(""), text("")),
            ]
        );
    }

    #[test]
    fn unusable_filters_are_rejected() {
        let mut mixed = filter(&["10.0.0.0/8"], &["10.1.0.0/16"], false);
        mixed.deny[0].peer = true;
        for bad in [
            filter(&[], &[], false),
            filter(&["10.0.0.0"], &[], false),
            mixed,
        ] {
            assert!(SourceMatches::new(&[bad]).is_err());
        }
        let nothing = filter(&["10.0.0.0/8"], &["10.0.0.0/7"], false);
        assert_eq!(SourceMatches::new(&[nothing]), Ok(SourceMatches::none()));
        let default = FilterChainMatch::default();
        let open = SourceMatches::new(&[]).unwrap();
        assert_eq!((open.allowed, open.denied), (Some(default), Vec::new()));
    }
}
