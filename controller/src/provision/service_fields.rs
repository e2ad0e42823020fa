//! Derives the Service fields that the configuration controls.

use serde_json::{Value, json};

use sesame_kinds::api::{PinnedNodePort, Publishing, PublishingType};

/// Omits fields that are invalid for this type.
pub(super) fn fields(
    publishing: &Publishing,
    type_: &PublishingType,
) -> Vec<(&'static str, Value)> {
    let Publishing {
        type_: _,
        ip_family_policy,
        ip_families,
        load_balancer_class,
        load_balancer_source_ranges,
        allocate_load_balancer_node_ports,
        external_traffic_policy,
        internal_traffic_policy,
        session_affinity,
        node_ports: _,
        upstream: _,
        annotations: _,
        labels: _,
    } = publishing;
    let mut fields = vec![
        ("ipFamilyPolicy", json!(ip_family_policy)),
        ("ipFamilies", json!(ip_families)),
    ];
    if *type_ != PublishingType::Headless {
        fields.extend([
            ("internalTrafficPolicy", json!(internal_traffic_policy)),
            ("sessionAffinity", json!(session_affinity)),
        ]);
    }
    if is_on_nodes(type_) {
        fields.push(("externalTrafficPolicy", json!(external_traffic_policy)));
    }
    if *type_ == PublishingType::LoadBalancer {
        fields.extend([
            ("loadBalancerClass", json!(load_balancer_class)),
            (
                "loadBalancerSourceRanges",
                json!(load_balancer_source_ranges),
            ),
            (
                "allocateLoadBalancerNodePorts",
                json!(allocate_load_balancer_node_ports),
            ),
        ]);
    }
    fields.retain(|(_, value)| !value.is_null());
    fields
}

/// Returns `None` to let the cluster choose.
pub(super) fn node_port(publishing: &Publishing, type_: &PublishingType, port: u16) -> Option<i32> {
    let pinned = publishing.node_ports.as_deref().unwrap_or_default();
    let mut pinned = pinned.iter().filter(|_| is_on_nodes(type_));
    let found = pinned.find(|pinned| pinned.port == i32::from(port));
    found.map(|PinnedNodePort { node_port, .. }| *node_port)
}

fn is_on_nodes(type_: &PublishingType) -> bool {
    PublishingType::ON_NODES.contains(type_)
}
