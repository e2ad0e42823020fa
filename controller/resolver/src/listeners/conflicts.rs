//! Finds listeners that are not distinct (Gateway API, "Distinct Listeners").
//!
//! If listeners of one object conflict, all of them are rejected. Between objects, the smaller
//! [`Rank`] wins. Rejected listeners do not affect others, unless a Gateway's own listeners
//! conflict. The input must only contain valid listeners with a supported protocol.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sesame_proto::schema;

use super::listener::Rank;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::status::{Grounds, Reason};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// Claims are sorted by rank.
    pub(crate) rank: Rank,
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    pub(crate) protocol: schema::Protocol,
    pub(crate) hostname: &'a Hostname,
}

/// Protocols of different families cannot share a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    PlainHttp,
    Tls,
    Tcp,
    Udp,
}

fn family(protocol: schema::Protocol) -> Family {
    match protocol {
        schema::Protocol::Http => Family::PlainHttp,
        schema::Protocol::Https | schema::Protocol::Tls => Family::Tls,
        schema::Protocol::RawTcp => Family::Tcp,
        schema::Protocol::RawUdp => Family::Udp,
    }
}

/// UDP flag and port number. UDP and TCP ports are independent.
type PortKey = (bool, u16);

fn port_key(claim: &Claim<'_>) -> PortKey {
    (family(claim.protocol) == Family::Udp, claim.port)
}

/// `gateways` contains Gateway names in order of precedence.
pub(crate) fn find(claims: &[Claim<'_>], gateways: &[String]) -> Vec<Option<Grounds>> {
    let mut held: BTreeMap<PortKey, PortClaims<'_>> = BTreeMap::new();
    let mut found = Vec::with_capacity(claims.len());
    for object_claims in claims.chunk_by(|a, b| a.rank == b.rank) {
        let lost: Vec<Option<Grounds>> = object_claims
            .iter()
            .map(|claim| taken(held.get(&port_key(claim))?, claim, gateways))
            .collect();
        let mut own: BTreeMap<PortKey, PortClaims<'_>> = BTreeMap::new();
        for (claim, lost) in object_claims.iter().zip(&lost) {
            if lost.is_none() {
                own.entry(port_key(claim)).or_default().add(claim);
            }
        }
        for (claim, lost) in object_claims.iter().zip(lost) {
            let key = port_key(claim);
            let lost_to_others = lost.is_some();
            let conflict = lost.or_else(|| contested(own.get(&key)?, claim));
            // If the Gateway's own listeners conflict, no other object may use their ports and
            // hostnames.
            if conflict.is_none() || (claim.rank.object == 0 && !lost_to_others) {
                held.entry(key).or_default().add(claim);
            }
            found.push(conflict);
        }
    }
    found
}

#[derive(Default)]
struct PortClaims<'a> {
    all: Vec<&'a Claim<'a>>,
    families: BTreeSet<Family>,
    by_hostname: HashMap<&'a str, Vec<&'a Claim<'a>>>,
}

impl<'a> PortClaims<'a> {
    fn add(&mut self, claim: &'a Claim<'a>) {
        self.all.push(claim);
        self.families.insert(family(claim.protocol));
        let hostname = claim.hostname.as_str();
        let claims = self.by_hostname.entry(hostname).or_default();
        claims.push(claim);
    }

    /// Returns a claim that cannot share the port with `claim`.
    fn refusing(&self, claim: &Claim<'_>) -> Option<&'a Claim<'a>> {
        let claim_family = family(claim.protocol);
        let whole_port = matches!(claim_family, Family::Tcp | Family::Udp);
        if !whole_port && self.families.iter().all(|other| *other == claim_family) {
            return None;
        }
        let mut others = self.all.iter().copied();
        others.find(|other| {
            (whole_port || family(other.protocol) != claim_family) && !std::ptr::eq(*other, claim)
        })
    }

    fn same_hostname(&self, claim: &Claim<'_>) -> &[&'a Claim<'a>] {
        let claims = self.by_hostname.get(claim.hostname.as_str());
        claims.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Messages name only Gateways, because other objects may belong to other tenants.
fn taken(held: &PortClaims<'_>, claim: &Claim<'_>, gateways: &[String]) -> Option<Grounds> {
    let port = claim.port;
    let holder_name = |holder: &Claim<'_>| match gateways.get(holder.rank.gateway) {
        Some(gateway) if holder.rank.gateway != claim.rank.gateway => {
            format!("{gateway}, which is served by the same Envoys and takes precedence")
        }
        _ => "the Gateway or a ListenerSet that takes precedence".to_owned(),
    };
    if let Some(holder) = held.refusing(claim) {
        let message = format!(
            "port {port} is used by {}, with a protocol that cannot share it with {}; choose another port",
            holder_name(holder),
            word(claim.protocol)
        );
        return Some((Reason::ProtocolConflict, message));
    }
    let holder = held.same_hostname(claim).first()?;
    let message = format!(
        "port {port} and hostname {:?} are used by {}; choose another hostname or port",
        claim.hostname.as_str(),
        holder_name(holder)
    );
    Some((Reason::HostnameConflict, message))
}

fn contested(own: &PortClaims<'_>, claim: &Claim<'_>) -> Option<Grounds> {
    let port = claim.port;
    if own.refusing(claim).is_some() {
        let names = own.all.iter();
        let names: Vec<String> = names
            .map(|claim| format!("{} ({})", claim.name, word(claim.protocol)))
            .collect();
        let message = format!(
            "port {port} is used by listeners that cannot share it: {}; give each its own port",
            names.join(", ")
        );
        return Some((Reason::ProtocolConflict, message));
    }
    let claims = own.same_hostname(claim);
    (claims.len() > 1).then(|| {
        let names: Vec<&str> = claims.iter().map(|claim| claim.name).collect();
        let message = format!(
            "port {port} and hostname {:?} are used by several listeners: {}; give each its own hostname or port",
            claim.hostname.as_str(),
            names.join(", ")
        );
        (Reason::HostnameConflict, message)
    })
}

fn word(protocol: schema::Protocol) -> &'static str {
    match protocol {
        schema::Protocol::Http => "HTTP",
        schema::Protocol::Https => "HTTPS",
        schema::Protocol::Tls => "TLS",
        schema::Protocol::RawTcp => "TCP",
        schema::Protocol::RawUdp => "UDP",
    }
}

#[cfg(test)]
mod tests {
    use schema::Protocol::{Http, Https, RawTcp, RawUdp, Tls};

    use super::*;

    #[test]
    fn conflicts() {
        const P: Option<Reason> = Some(Reason::ProtocolConflict);
        const H: Option<Reason> = Some(Reason::HostnameConflict);
        type Case<'a> = (
            &'a str,
            &'a [(u16, schema::Protocol, &'a str, Option<Reason>)],
        );
        let cases: &[Case<'_>] = &[
            (
                "different hostnames",
                &[
                    (80, Http, "a.com", None),
                    (80, Http, "*.a.com", None),
                    (80, Http, "", None),
                ],
            ),
            (
                "same hostname",
                &[
                    (80, Http, "a.com", H),
                    (80, Http, "a.com", H),
                    (80, Http, "b.com", None),
                ],
            ),
            (
                "both without a hostname",
                &[(80, Http, "", H), (80, Http, "", H)],
            ),
            (
                "same hostname, different ports",
                &[(80, Http, "a.com", None), (81, Http, "a.com", None)],
            ),
            (
                "HTTP and HTTPS on a port",
                &[(80, Http, "a.com", P), (80, Https, "b.com", P)],
            ),
            (
                "HTTPS and TLS with different hostnames",
                &[(443, Https, "a.com", None), (443, Tls, "b.com", None)],
            ),
            (
                "HTTPS and TLS with the same hostname",
                &[(443, Https, "a.com", H), (443, Tls, "a.com", H)],
            ),
            (
                "TCP shares its port with nothing",
                &[
                    (80, RawTcp, "", P),
                    (80, Http, "a.com", P),
                    (81, Http, "", None),
                ],
            ),
            ("two TCP", &[(80, RawTcp, "", P), (80, RawTcp, "", P)]),
            (
                "UDP and TCP on a port",
                &[(53, RawTcp, "", None), (53, RawUdp, "", None)],
            ),
            ("two UDP", &[(53, RawUdp, "", P), (53, RawUdp, "", P)]),
        ];
        for (name, listeners) in cases {
            let hosts: Vec<Hostname> = listeners
                .iter()
                .map(|(_, _, host, _)| Hostname::parse(host).expect("valid"))
                .collect();
            let claims: Vec<Claim<'_>> = listeners
                .iter()
                .zip(&hosts)
                .map(|((port, protocol, ..), hostname)| Claim {
                    rank: Rank::default(),
                    name: "l",
                    port: *port,
                    protocol: *protocol,
                    hostname,
                })
                .collect();
            let found: Vec<Option<Reason>> = find(&claims, &[])
                .into_iter()
                .map(|c| c.map(|c| c.0))
                .collect();
            let expected: Vec<Option<Reason>> = listeners.iter().map(|l| l.3).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn first_object_wins_conflict_without_harming_others() {
        const P: Option<Reason> = Some(Reason::ProtocolConflict);
        const H: Option<Reason> = Some(Reason::HostnameConflict);
        type Case<'a> = &'a [(usize, u16, schema::Protocol, &'a str, Option<Reason>)];
        let cases: &[Case<'_>] = &[
            &[
                (0, 80, Http, "a.com", None),
                (1, 80, Http, "a.com", H),
                (1, 80, Http, "b.com", None),
                (2, 80, Http, "b.com", H),
            ],
            &[
                (0, 80, Http, "a.com", None),
                (1, 80, RawTcp, "", P),
                (2, 80, Http, "b.com", None),
            ],
            &[
                (1, 80, RawTcp, "", None),
                (2, 80, Http, "a.com", P),
                (3, 80, RawTcp, "", P),
            ],
            // The Gateway's own listeners conflict, so no listener gets the hostname.
            &[
                (0, 80, Http, "a.com", H),
                (0, 80, Http, "a.com", H),
                (1, 80, Http, "a.com", H),
            ],
            // A ListenerSet's listeners conflict, so the next ListenerSet may use the hostname.
            &[
                (1, 80, Http, "a.com", H),
                (1, 80, Http, "a.com", H),
                (2, 80, Http, "a.com", None),
            ],
            &[
                (0, 443, Https, "a.com", None),
                (1, 443, Tls, "b.com", None),
                (2, 443, Http, "c.com", P),
                (2, 53, RawUdp, "", None),
                (3, 53, RawTcp, "", None),
                (3, 53, RawUdp, "", P),
            ],
        ];
        for case in cases {
            let hosts: Vec<Hostname> = case
                .iter()
                .map(|(_, _, _, host, _)| Hostname::parse(host).expect("valid"))
                .collect();
            let claims: Vec<Claim<'_>> = case
                .iter()
                .zip(&hosts)
                .map(|((rank, port, protocol, ..), hostname)| Claim {
                    rank: Rank {
                        gateway: 0,
                        object: *rank,
                    },
                    name: "l",
                    port: *port,
                    protocol: *protocol,
                    hostname,
                })
                .collect();
            let found: Vec<Option<Reason>> = find(&claims, &[])
                .into_iter()
                .map(|c| c.map(|c| c.0))
                .collect();
            let expected: Vec<Option<Reason>> = case.iter().map(|l| l.4).collect();
            assert_eq!(found, expected, "{case:?}");
        }
    }
}
