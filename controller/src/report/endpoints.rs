//! Collects a Gateway's hosts as the endpoints for its Service. A host need not serve the newest
//! revision, because clients must still be served during a change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::nodes::Permission;
use crate::statuses::HostEndpoint;
use sesame_kinds::status::AgentState;
use sesame_published::GatewayAgentStatus;

const MAX_PER_HOST: usize = 16;
const MAX_ENDPOINTS: usize = 5000;

pub(super) fn add(
    status: &GatewayAgentStatus,
    host: &str,
    allow: impl Fn(&str, IpAddr) -> Option<Permission>,
    endpoints: &mut BTreeMap<IpAddr, HostEndpoint>,
) {
    if status.state == AgentState::Down {
        return;
    }
    let ips = status.addresses.iter();
    let ips = ips.filter_map(|text| text.parse::<IpAddr>().ok());
    let allowed = ips.filter_map(|ip| Some((ip, allow(host, ip)?)));
    for (ip, permission) in allowed.take(MAX_PER_HOST) {
        let node = (permission == Permission::OfNode).then(|| host.to_owned());
        let draining = status.draining;
        if let Some(shared) = endpoints.get_mut(&ip) {
            // Several hosts may share an address, which is ready if any of these hosts is.
            shared.node = shared.node.take().or(node);
            shared.draining &= draining;
        } else if endpoints.len() < MAX_ENDPOINTS {
            endpoints.insert(ip, HostEndpoint { node, draining });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: AgentState, draining: bool, addresses: &[&str]) -> GatewayAgentStatus {
        GatewayAgentStatus {
            state,
            draining,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            ..GatewayAgentStatus::default()
        }
    }

    #[test]
    fn serving_hosts_are_permitted_endpoints_unless_down() {
        let allow = |host: &str, ip: IpAddr| match (host, ip.to_string().as_str()) {
            ("a", "192.0.2.1") => Some(Permission::OfNode),
            (_, "192.0.2.9") => Some(Permission::Declared),
            _ => None,
        };
        let mut found = BTreeMap::new();
        for (host, status) in [
            (
                "a",
                status(
                    AgentState::Applying,
                    false,
                    &["192.0.2.1", "192.0.2.2", "a name"],
                ),
            ),
            ("b", status(AgentState::Degraded, true, &["192.0.2.9"])),
            ("c", status(AgentState::Down, false, &["192.0.2.9"])),
        ] {
            add(&status, host, allow, &mut found);
        }
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let host = |node: Option<&str>, draining| HostEndpoint {
            node: node.map(str::to_owned),
            draining,
        };
        let expected = [
            (ip("192.0.2.1"), host(Some("a"), false)),
            (ip("192.0.2.9"), host(None, true)),
        ];
        assert_eq!(found, expected.into());
        let other = status(AgentState::Serving, false, &["192.0.2.9"]);
        add(&other, "d", allow, &mut found);
        assert_eq!(found[&ip("192.0.2.9")], host(None, false));
    }
}
