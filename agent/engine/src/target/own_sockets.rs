//! Lists all sockets of this host's Gateways and agent, which must not be backends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use sesame_kinds::api::NamespacedName;

use super::host_settings::HostSettings;
use crate::addresses::{AddressRequest, Assignment};

pub(super) fn own_sockets(
    needs: &[AddressRequest],
    assignments: &BTreeMap<NamespacedName, Assignment>,
    host: &HostSettings,
) -> BTreeSet<SocketAddr> {
    if host.allow_local_endpoints {
        return BTreeSet::new();
    }
    let gateway_sockets = needs.iter().flat_map(|need| {
        let given = assignments.get(&need.gateway);
        let addresses = given.into_iter().flat_map(|given| &given.addresses);
        addresses.flat_map(|ip| need.ports.iter().map(|(_, port)| (*ip, *port)))
    });
    let agent_sockets = host.own_addresses.iter();
    let all: BTreeSet<(IpAddr, u32)> = gateway_sockets
        .chain(agent_sockets.map(|own| (own.ip(), own.port().into())))
        .collect();
    let reached = |ip: IpAddr| -> Vec<IpAddr> {
        if !ip.is_unspecified() {
            return vec![ip];
        }
        let same_kind = |own: &IpAddr| own.is_ipv4() == ip.is_ipv4();
        let known = host.addresses.known().iter().copied();
        known.filter(same_kind).collect()
    };
    let sockets = all.into_iter().flat_map(|(ip, port)| {
        let port = u16::try_from(port).unwrap_or(0);
        reached(ip).into_iter().map(move |ip| (ip, port))
    });
    sockets.map(SocketAddr::from).collect()
}
