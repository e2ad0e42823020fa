//! Which listeners of a set are not distinct (Gateway API, "Distinct Listeners").
//!
//! Within one Gateway no winner is picked: every listener of a conflict has it. Only listeners that are
//! valid and of a protocol that is served may be put in.

use std::collections::{BTreeMap, HashMap};

use sesame_proto::schema;

use super::hostnames::Hostname;
use crate::status::Reason;

/// What distinguishes a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    pub(super) port: u16,
    pub(super) protocol: schema::Protocol,
    pub(super) hostname: &'a Hostname,
}

/// What shares a port without looking at hostnames.
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

/// For each claim, in order: the conflict it is part of.
pub(super) fn find(claims: &[Claim<'_>]) -> Vec<Option<(Reason, String)>> {
    // UDP has ports of its own.
    let mut ports: BTreeMap<(bool, u16), Vec<&Claim<'_>>> = BTreeMap::new();
    for claim in claims {
        let udp = family(claim.protocol) == Family::Udp;
        ports.entry((udp, claim.port)).or_default().push(claim);
    }
    let judged: BTreeMap<(bool, u16), Port<'_>> = ports
        .into_iter()
        .map(|(key, claims)| (key, Port::judge(&claims)))
        .collect();
    claims
        .iter()
        .map(|claim| {
            let udp = family(claim.protocol) == Family::Udp;
            let port = judged.get(&(udp, claim.port))?;
            port.conflict(claim)
        })
        .collect()
}

/// What is wrong on one port.
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

    fn conflict(&self, claim: &Claim<'_>) -> Option<(Reason, String)> {
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

/// The protocol as the API writes it.
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
}
