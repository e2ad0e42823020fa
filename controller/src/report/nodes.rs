//! Decides at which addresses a host may serve. A compromised host must not be able to redirect
//! clients to other hosts' addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::ApiResource;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::agents::FleetEvent;
use crate::replica::Replica;
use crate::watch::{Json, Keep, ObjectWatch, PAGE, Received, WatchEvent, watch_config};
use sesame_kinds::api::NamespacedName;
use sesame_proto::network::Network;

const RECHECK_INTERVAL: Duration = Duration::from_secs(10);
const MAX_ADDRESSES: usize = 64;

pub(super) type NamedNode = (String, NodeAddresses);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAddresses(BTreeSet<IpAddr>);

impl Keep for NodeAddresses {
    fn keep(_: &NamespacedName, json: Json) -> Self {
        let all = json.value.pointer("/status/addresses");
        let all = all.and_then(Value::as_array).into_iter().flatten();
        let ips = all.filter_map(|address| address["address"].as_str()?.parse().ok());
        Self(ips.take(MAX_ADDRESSES).collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    OfNode,
    Declared,
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// `None` until all Nodes have been listed.
    known: Option<BTreeMap<String, NodeAddresses>>,
    declared: Vec<Network>,
}

impl Nodes {
    /// Every host may serve at these addresses.
    pub(super) fn declare(&mut self, declared: &[Network]) {
        self.declared = declared.to_vec();
    }

    /// Records that Nodes cannot be read, but keeps Nodes that were read earlier.
    pub(super) fn none(&mut self) {
        self.known.get_or_insert_default();
    }

    /// Returns true if all Nodes have been listed, or cannot be read.
    pub(super) fn listed(&self) -> bool {
        self.known.is_some()
    }

    /// Returns true if any address was added or removed.
    pub(super) fn apply(&mut self, event: WatchEvent<NamedNode>) -> bool {
        if let WatchEvent::Listed(all) = event {
            let all = Some(all.into_iter().collect());
            let other = self.known != all;
            self.known = all;
            return other;
        }
        let known = self.known.get_or_insert_default();
        match event {
            WatchEvent::Applied((name, addresses)) => {
                known.insert(name, addresses.clone()) != Some(addresses)
            }
            WatchEvent::Deleted((name, _)) => known.remove(&name).is_some(),
            WatchEvent::Listed(_) => false,
        }
    }

    /// Returns `None` if the host may not serve at this address.
    pub(super) fn allow(&self, host: &str, ip: IpAddr) -> Option<Permission> {
        let node = self.known.as_ref().and_then(|known| known.get(host));
        if node.is_some_and(|NodeAddresses(all)| all.contains(&ip)) {
            return Some(Permission::OfNode);
        }
        let declared = self.declared.iter().any(|network| network.holds(ip));
        declared.then_some(Permission::Declared)
    }
}

pub(super) async fn watch(replica: Replica, events: UnboundedSender<FleetEvent>) {
    let api = Api::all_with(replica.client.clone(), &ApiResource::erase::<Node>(&()));
    let watch = ObjectWatch::new(&replica, "Node", api, watch_config().page_size(PAGE));
    let keep = |node: Received<NodeAddresses>| (node.name().name, node.kept);
    let send = |event| events.send(FleetEvent::Nodes(event)).is_ok();
    watch.run(RECHECK_INTERVAL, keep, send).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(addresses: &[&str]) -> NodeAddresses {
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        let node = json!({"metadata": {"name": "a"}, "status": {"addresses": addresses}});
        let node: Received<NodeAddresses> = serde_json::from_value(node).expect("an object");
        node.kept
    }

    #[test]
    fn host_serves_at_node_and_declared_addresses() {
        let mut nodes = Nodes::default();
        nodes.declare(&["198.51.100.0/24".parse().expect("a network")]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(!nodes.listed());
        let a = node(&["192.0.2.1", "a.example.com", "2001:db8::1"]);
        let b = node(&["192.0.2.2"]);
        let all = || {
            WatchEvent::Listed(vec![
                ("a".to_owned(), a.clone()),
                ("b".to_owned(), b.clone()),
            ])
        };
        assert!(nodes.apply(all()));
        assert!(!nodes.apply(all()));
        for text in ["192.0.2.1", "2001:db8::1"] {
            assert_eq!(nodes.allow("a", ip(text)), Some(Permission::OfNode));
        }
        assert_eq!(nodes.allow("a", ip("192.0.2.2")), None);
        assert_eq!(nodes.allow("c", ip("192.0.2.2")), None);
        let declared = Some(Permission::Declared);
        assert_eq!(nodes.allow("c", ip("198.51.100.9")), declared);
        assert!(!nodes.apply(WatchEvent::Applied(("b".to_owned(), b.clone()))));
        assert!(nodes.apply(WatchEvent::Applied(("b".to_owned(), a.clone()))));
        assert!(nodes.apply(WatchEvent::Deleted(("a".to_owned(), a.clone()))));
        assert_eq!(nodes.allow("a", ip("192.0.2.1")), None);
    }
}
