//! Conflicts between listeners that are not distinct (Gateway API, "Distinct Listeners").
//!
//! Within one object no winner is picked: every listener of a conflict has it. Between objects the Gateway takes
//! precedence over its ListenerSets, and of those the first one; a listener that loses harms no other. Only listeners that
//! are valid and of a supported protocol may be passed in.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sesame_proto::schema;

use crate::resolve::syntax::hostnames::Hostname;
use crate::status::{Grounds, Reason};

/// The parts of a listener that make it distinct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// Rank of the owner: 0 for the Gateway, then its ListenerSets in their order. Claims are sorted by it.
    pub(crate) rank: usize,
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    pub(crate) protocol: schema::Protocol,
    pub(crate) hostname: &'a Hostname,
}

/// Protocols that share a port regardless of hostnames.
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

/// A port; UDP has ports of its own, for which the first part is true.
type PortKey = (bool, u16);

fn port_key(claim: &Claim<'_>) -> PortKey {
    (family(claim.protocol) == Family::Udp, claim.port)
}

/// Returns the conflict of each claim, in their order.
pub(crate) fn find(claims: &[Claim<'_>]) -> Vec<Option<Grounds>> {
    let mut held: BTreeMap<PortKey, PortClaims<'_>> = BTreeMap::new();
    let mut found = Vec::with_capacity(claims.len());
    for of_one_object in claims.chunk_by(|a, b| a.rank == b.rank) {
        let lost: Vec<Option<Grounds>> = of_one_object
            .iter()
            .map(|claim| held.get(&port_key(claim))?.conflict(claim))
            .collect();
        let mut ports: BTreeMap<PortKey, Vec<&Claim<'_>>> = BTreeMap::new();
        for (claim, lost) in of_one_object.iter().zip(&lost) {
            if lost.is_none() {
                ports.entry(port_key(claim)).or_default().push(claim);
            }
        }
        let judged: BTreeMap<PortKey, Port<'_>> = ports
            .into_iter()
            .map(|(key, claims)| (key, Port::judge(&claims)))
            .collect();
        for (claim, lost) in of_one_object.iter().zip(lost) {
            let key = port_key(claim);
            let lost_to_others = lost.is_some();
            let conflict = lost.or_else(|| judged.get(&key)?.conflict(claim));
            // A ListenerSet must not take a claim on which the listeners of the Gateway itself are in conflict.
            if conflict.is_none() || (claim.rank == 0 && !lost_to_others) {
                held.entry(key).or_default().add(claim);
            }
            found.push(conflict);
        }
    }
    found
}

/// The claims on one port of objects that take precedence.
#[derive(Default)]
struct PortClaims<'a> {
    families: BTreeSet<Family>,
    hostnames: HashSet<&'a str>,
}

impl<'a> PortClaims<'a> {
    fn add(&mut self, claim: &Claim<'a>) {
        self.families.insert(family(claim.protocol));
        self.hostnames.insert(claim.hostname.as_str());
    }

    /// Returns the conflict of a claim. Its message names no other object, since authors are not told what others have.
    fn conflict(&self, claim: &Claim<'_>) -> Option<Grounds> {
        let own = family(claim.protocol);
        let port = claim.port;
        if matches!(own, Family::Tcp | Family::Udp) || self.families.iter().any(|f| *f != own) {
            return Some((
                Reason::ProtocolConflict,
                format!(
                    "port {port} is used by the Gateway or a ListenerSet that goes before this one, with a protocol \
                     that cannot share it with {}; choose another port",
                    word(claim.protocol)
                ),
            ));
        }
        self.hostnames.contains(claim.hostname.as_str()).then(|| {
            (
                Reason::HostnameConflict,
                format!(
                    "port {port} and hostname {:?} are used by the Gateway or a ListenerSet that goes before this \
                     one; choose another hostname or port",
                    claim.hostname.as_str()
                ),
            )
        })
    }
}

/// The conflicts on one port.
struct Port<'a> {
    protocol_conflict: Option<String>,
    same_hostname: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Port<'a> {
    fn judge(claims: &[&Claim<'a>]) -> Self {
        let one_family = claims
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if family(a.protocol) == family(b.protocol)));
        let whole_port = claims
            .iter()
            .any(|claim| matches!(family(claim.protocol), Family::Tcp | Family::Udp));
        let mut same_hostname: HashMap<&str, Vec<&str>> = HashMap::new();
        for claim in claims {
            same_hostname
                .entry(claim.hostname.as_str())
                .or_default()
                .push(claim.name);
        }
        let conflict = claims.len() > 1 && (whole_port || !one_family);
        Self {
            protocol_conflict: conflict.then(|| {
                let names: Vec<String> = claims
                    .iter()
                    .map(|claim| format!("{} ({})", claim.name, word(claim.protocol)))
                    .collect();
                names.join(", ")
            }),
            same_hostname,
        }
    }

    fn conflict(&self, claim: &Claim<'_>) -> Option<Grounds> {
        if let Some(names) = &self.protocol_conflict {
            return Some((
                Reason::ProtocolConflict,
                format!(
                    "port {} is used by listeners that cannot share it: {names}; give each its own port",
                    claim.port
                ),
            ));
        }
        let names = self.same_hostname.get(claim.hostname.as_str())?;
        (names.len() > 1).then(|| {
            (
                Reason::HostnameConflict,
                format!(
                    "port {} and hostname {:?} are used by several listeners: {}; give each its own hostname \
                     or port",
                    claim.port,
                    claim.hostname.as_str(),
                    names.join(", ")
                ),
            )
        })
    }
}

/// Returns the protocol as the API writes it.
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
                "both without hostname",
                &[(80, Http, "", H), (80, Http, "", H)],
            ),
            (
                "same hostname, other port",
                &[(80, Http, "a.com", None), (81, Http, "a.com", None)],
            ),
            (
                "HTTP and HTTPS on a port",
                &[(80, Http, "a.com", P), (80, Https, "b.com", P)],
            ),
            (
                "HTTPS and TLS by hostname",
                &[(443, Https, "a.com", None), (443, Tls, "b.com", None)],
            ),
            (
                "HTTPS and TLS of one hostname",
                &[(443, Https, "a.com", H), (443, Tls, "a.com", H)],
            ),
            (
                "TCP shares with nothing",
                &[
                    (80, RawTcp, "", P),
                    (80, Http, "a.com", P),
                    (81, Http, "", None),
                ],
            ),
            ("two TCP", &[(80, RawTcp, "", P), (80, RawTcp, "", P)]),
            (
                "UDP beside TCP",
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
                    rank: 0,
                    name: "l",
                    port: *port,
                    protocol: *protocol,
                    hostname,
                })
                .collect();
            let found: Vec<Option<Reason>> =
                find(&claims).into_iter().map(|c| c.map(|c| c.0)).collect();
            let expected: Vec<Option<Reason>> = listeners.iter().map(|l| l.3).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn between_objects_the_first_wins_and_losers_harm_nobody() {
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
            // Two of the Gateway conflict: nobody has it.
            &[
                (0, 80, Http, "a.com", H),
                (0, 80, Http, "a.com", H),
                (1, 80, Http, "a.com", H),
            ],
            // Two of a set conflict: the next may have it.
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
                    rank: *rank,
                    name: "l",
                    port: *port,
                    protocol: *protocol,
                    hostname,
                })
                .collect();
            let found: Vec<Option<Reason>> =
                find(&claims).into_iter().map(|c| c.map(|c| c.0)).collect();
            let expected: Vec<Option<Reason>> = case.iter().map(|l| l.4).collect();
            assert_eq!(found, expected, "{case:?}");
        }
    }
}
