//! Which addresses each Gateway listens on. Pure.
//!
//! A Gateway that asks for addresses gets those that the host offers. One Gateway alone gets the whole
//! pool. Several share it: one address each while they last, else the same addresses as long as no port is
//! wanted twice. What cannot be had is said, never silently dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sesame_controller::api::NamespacedName;
use sesame_proto::schema::Transport;

/// What one Gateway needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// The Gateway.
    pub gateway: NamespacedName,
    /// Addresses it asks for; empty leaves the choice to the host.
    pub requested: Vec<IpAddr>,
    /// The ports it binds, after the port map. TCP and UDP have ports of their own.
    pub ports: BTreeSet<(Transport, u32)>,
}

/// The outcome for one Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Where to listen; empty when nothing could be had.
    pub addresses: Vec<IpAddr>,
    /// Why something asked for was not given.
    pub problems: Vec<String>,
}

/// Shares `pool` among the Gateways, which come in order of precedence.
pub(super) fn assign(needs: &[Need], pool: &[IpAddr]) -> BTreeMap<NamespacedName, Assignment> {
    let undecided = needs
        .iter()
        .filter(|need| need.requested.is_empty())
        .count();
    let one_each = undecided > 1 && specific(pool).count() >= undecided;
    let mut own = specific(pool);
    let mut taken: Vec<(IpAddr, (Transport, u32))> = Vec::new();
    let mut result = BTreeMap::new();
    for need in needs {
        let mut assignment = Assignment::default();
        let candidates: Vec<IpAddr> = if !need.requested.is_empty() {
            let (offered, refused): (Vec<_>, Vec<_>) =
                need.requested.iter().partition(|ip| offers(pool, **ip));
            for ip in refused {
                assignment.problems.push(format!(
                    "address {ip} is not one of the addresses that this host offers ({})",
                    list(pool)
                ));
            }
            offered
        } else if one_each {
            own.next().into_iter().collect()
        } else {
            pool.to_vec()
        };
        for ip in candidates {
            let conflict = need.ports.iter().find(|port| {
                taken
                    .iter()
                    .any(|(other, taken)| taken == *port && overlap(*other, ip))
            });
            match conflict {
                Some((transport, port)) => assignment.problems.push(format!(
                    "{} port {port} of address {ip} is already taken by another Gateway; give the host one address for each Gateway",
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

fn specific(pool: &[IpAddr]) -> impl Iterator<Item = IpAddr> + '_ {
    pool.iter().copied().filter(|ip| !ip.is_unspecified())
}

fn offers(pool: &[IpAddr], wanted: IpAddr) -> bool {
    pool.iter()
        .any(|ip| *ip == wanted || (ip.is_unspecified() && ip.is_ipv4() == wanted.is_ipv4()))
}

fn overlap(a: IpAddr, b: IpAddr) -> bool {
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

    fn need(name: &str, requested: &[&str], ports: &[u32]) -> Need {
        Need {
            gateway: NamespacedName::new("default", name),
            requested: requested.iter().map(|ip| ip.parse().unwrap()).collect(),
            ports: ports.iter().map(|port| (Transport::Tcp, *port)).collect(),
        }
    }

    fn addresses(needs: &[Need], pool: &[&str]) -> Vec<Vec<String>> {
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
