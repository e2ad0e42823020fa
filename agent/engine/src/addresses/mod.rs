//! Assigns addresses to Gateways. A Gateway keeps its address when other Gateways change and when
//! the agent restarts, because DNS names and clients refer to it. An address that cannot be
//! assigned is reported, never silently dropped.

pub(super) mod host;
mod interfaces;
mod own;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::Transport;

pub use self::own::HostEndpoints;
pub(super) use self::own::OwnAddresses;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressRequest {
    pub gateway: NamespacedName,
    /// If empty, the host chooses.
    pub requested: Vec<IpAddr>,
    pub held: Vec<IpAddr>,
    /// Ports that the Gateway binds according to the port map.
    pub ports: BTreeSet<(Transport, u32)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    pub addresses: Vec<IpAddr>,
    pub problems: Vec<String>,
}

/// `needs` is in order of precedence.
pub(super) fn assign(
    needs: &[AddressRequest],
    pool: &[IpAddr],
) -> BTreeMap<NamespacedName, Assignment> {
    let undecided = needs
        .iter()
        .filter(|need| need.requested.is_empty())
        .count();
    let one_each = undecided > 1 && specific(pool).count() >= undecided;
    let mut own = own_addresses(needs, pool);
    let mut taken: Vec<(IpAddr, (Transport, u32))> = Vec::new();
    let mut result = BTreeMap::new();
    for need in needs {
        let mut assignment = Assignment::default();
        let candidates: Vec<IpAddr> = if !need.requested.is_empty() {
            let (offered, refused): (Vec<_>, Vec<_>) =
                need.requested.iter().partition(|ip| offers(pool, **ip));
            for ip in refused {
                assignment.problems.push(format!(
                    "address {ip} is not offered by this host ({})",
                    list(pool)
                ));
            }
            offered
        } else if one_each {
            own.remove(&need.gateway).into_iter().collect()
        } else {
            // Put the Gateway's current addresses first. If more Gateways share the pool later, the
            // Gateway keeps only its first address.
            let mut all = pool.to_vec();
            all.sort_by_key(|ip| {
                need.held
                    .iter()
                    .position(|held| held == ip)
                    .unwrap_or(usize::MAX)
            });
            all
        };
        for ip in candidates {
            let conflict = need.ports.iter().find(|port| {
                taken
                    .iter()
                    .any(|(other, taken)| taken == *port && same(*other, ip))
            });
            match conflict {
                Some((transport, port)) => assignment.problems.push(format!(
                    "{} port {port} on address {ip} is already used by another Gateway; give the host one address for each Gateway",
                    transport.as_str_name()
                )),
                None => assignment.addresses.push(ip),
            }
        }
        for ip in &assignment.addresses {
            taken.extend(need.ports.iter().map(|port| (*ip, *port)));
        }
        result.insert(need.gateway.clone(), assignment);
    }
    result
}

/// Prefers a Gateway's current address, and then free addresses that no Gateway requests.
fn own_addresses(needs: &[AddressRequest], pool: &[IpAddr]) -> BTreeMap<NamespacedName, IpAddr> {
    let offered: BTreeSet<IpAddr> = specific(pool).collect();
    let requested: BTreeSet<IpAddr> = needs.iter().flat_map(|n| n.requested.clone()).collect();
    let mut given = BTreeSet::new();
    let mut own = BTreeMap::new();
    let undecided = || needs.iter().filter(|need| need.requested.is_empty());
    for need in undecided() {
        let kept = need
            .held
            .iter()
            .find(|ip| offered.contains(*ip) && !requested.contains(*ip) && !given.contains(*ip));
        if let Some(ip) = kept {
            given.insert(*ip);
            own.insert(need.gateway.clone(), *ip);
        }
    }
    for need in undecided() {
        if own.contains_key(&need.gateway) {
            continue;
        }
        let mut free = specific(pool).filter(|ip| !given.contains(ip));
        let first = free.clone().next();
        if let Some(ip) = free.find(|ip| !requested.contains(ip)).or(first) {
            given.insert(ip);
            own.insert(need.gateway.clone(), ip);
        }
    }
    own
}

fn specific(pool: &[IpAddr]) -> impl Iterator<Item = IpAddr> + Clone + '_ {
    pool.iter().copied().filter(|ip| !ip.is_unspecified())
}

fn offers(pool: &[IpAddr], wanted: IpAddr) -> bool {
    pool.iter()
        .any(|ip| *ip == wanted || (ip.is_unspecified() && ip.is_ipv4() == wanted.is_ipv4()))
}

/// An unspecified address overlaps with every address of its family.
pub(super) fn overlap(a: &[IpAddr], b: &[IpAddr]) -> bool {
    a.iter().any(|a| b.iter().any(|b| same(*a, *b)))
}

fn same(a: IpAddr, b: IpAddr) -> bool {
    a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}

fn list(pool: &[IpAddr]) -> String {
    pool.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str, requested: &[&str], ports: &[u32]) -> AddressRequest {
        AddressRequest {
            gateway: NamespacedName::new("default", name),
            requested: requested.iter().map(|ip| ip.parse().unwrap()).collect(),
            held: Vec::new(),
            ports: ports.iter().map(|port| (Transport::Tcp, *port)).collect(),
        }
    }

    fn addresses(needs: &[AddressRequest], pool: &[&str]) -> Vec<Vec<String>> {
        let pool: Vec<IpAddr> = pool.iter().map(|ip| ip.parse().unwrap()).collect();
        let assigned = assign(needs, &pool);
        needs
            .iter()
            .map(|need| {
                assigned[&need.gateway]
                    .addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn one_gateway_gets_the_whole_pool() {
        assert_eq!(
            addresses(&[need("a", &[], &[80])], &["0.0.0.0", "::"]),
            [["0.0.0.0", "::"]]
        );
    }

    #[test]
    fn several_gateways_get_one_address_each() {
        assert_eq!(
            addresses(
                &[need("a", &[], &[80]), need("b", &[], &[80])],
                &["10.0.0.1", "10.0.0.2"]
            ),
            [["10.0.0.1"], ["10.0.0.2"]]
        );
    }

    #[test]
    fn gateway_keeps_address_as_others_come_and_go() {
        let pool = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let holds = |name: &str, held: &[&str]| AddressRequest {
            held: held.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..need(name, &[], &[80])
        };
        let more = [need("a", &[], &[80]), holds("b", &["10.0.0.1"])];
        assert_eq!(addresses(&more, &pool), [["10.0.0.2"], ["10.0.0.1"]]);
        let fewer = [holds("b", &["10.0.0.2"]), holds("c", &["10.0.0.3"])];
        assert_eq!(addresses(&fewer, &pool), [["10.0.0.2"], ["10.0.0.3"]]);
        let alone = addresses(&fewer[..1], &pool);
        assert_eq!(
            alone[0],
            ["10.0.0.2", "10.0.0.1", "10.0.0.3", "10.0.0.4"].map(str::to_owned)
        );
        let held: Vec<&str> = alone[0].iter().map(String::as_str).collect();
        let again = [need("a", &[], &[80]), holds("b", &held)];
        assert_eq!(addresses(&again, &pool), [["10.0.0.1"], ["10.0.0.2"]]);
        let others = [
            holds("a", &["10.0.0.9"]),
            holds("b", &["10.0.0.2"]),
            holds("c", &["10.0.0.2"]),
            holds("d", &["10.0.0.4"]),
            need("e", &["10.0.0.4"], &[80]),
        ];
        let pool = [&pool[..], &["10.0.0.5"]].concat();
        assert_eq!(
            addresses(&others, &pool),
            [
                ["10.0.0.1"],
                ["10.0.0.2"],
                ["10.0.0.3"],
                ["10.0.0.5"],
                ["10.0.0.4"]
            ]
        );
    }

    #[test]
    fn gateways_share_an_address_while_their_ports_differ() {
        let needs = [
            need("a", &[], &[80]),
            need("b", &[], &[81]),
            need("c", &[], &[80]),
        ];
        assert_eq!(
            addresses(&needs, &["0.0.0.0"]),
            [vec!["0.0.0.0"], vec!["0.0.0.0"], vec![]]
        );
        let assigned = assign(&needs, &["0.0.0.0".parse().unwrap()]);
        assert!(assigned[&needs[2].gateway].problems[0].contains("port 80"));
    }

    #[test]
    fn tcp_and_udp_ports_do_not_clash() {
        let mut needs = [need("a", &[], &[53]), need("b", &[], &[53])];
        needs[1].ports = BTreeSet::from([(Transport::Udp, 53)]);
        assert_eq!(addresses(&needs, &["0.0.0.0"]), [["0.0.0.0"], ["0.0.0.0"]]);
    }

    #[test]
    fn an_address_asked_for_must_be_offered() {
        let needs = [need("a", &["192.0.2.1", "10.0.0.1"], &[80])];
        assert_eq!(addresses(&needs, &["10.0.0.1"]), [["10.0.0.1"]]);
        assert_eq!(addresses(&needs, &["0.0.0.0"]), [["192.0.2.1", "10.0.0.1"]]);
    }
}
