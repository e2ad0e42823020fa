//! Validates `spec.publishing`.

use std::collections::BTreeSet;

use sesame_proto::dns_name::is_dns_subdomain;

use super::{Faults, MAX_ENTRIES, MAX_LISTED};
use sesame_kinds::api::{PinnedNodePort, Publishing, PublishingType, UpstreamSettings};

/// Types whose addresses a load balancer provides.
const LOAD_BALANCER_TYPES: &[PublishingType] = &[PublishingType::LoadBalancer];
const NODE_TYPES: &[PublishingType] = PublishingType::ON_NODES;
/// Types with a cluster IP.
const CLUSTER_IP_TYPES: &[PublishingType] = &[
    PublishingType::ClusterIp,
    PublishingType::NodePort,
    PublishingType::LoadBalancer,
    PublishingType::UpstreamGateway,
];
const UPSTREAM: &[PublishingType] = &[PublishingType::UpstreamGateway];

impl Faults<'_> {
    pub(super) fn publishing(&mut self, publishing: &Publishing) {
        let Publishing {
            type_,
            ip_family_policy,
            ip_families,
            load_balancer_class: _,
            load_balancer_source_ranges,
            allocate_load_balancer_node_ports: _,
            external_traffic_policy,
            internal_traffic_policy,
            session_affinity,
            node_ports,
            upstream,
            annotations,
            labels,
        } = publishing;
        self.word("publishing.type", type_.as_ref());
        self.word("publishing.ipFamilyPolicy", ip_family_policy.as_ref());
        let families = ip_families.as_deref().unwrap_or_default();
        if self.number("publishing.ipFamilies", families.len(), 2) {
            for (i, family) in families.iter().enumerate() {
                self.word(&format!("publishing.ipFamilies[{i}]"), Some(family));
            }
        }
        self.networks(
            "publishing.loadBalancerSourceRanges",
            load_balancer_source_ranges.as_deref(),
        );
        for (field, policy) in [
            ("externalTrafficPolicy", external_traffic_policy),
            ("internalTrafficPolicy", internal_traffic_policy),
        ] {
            self.word(&format!("publishing.{field}"), policy.as_ref());
        }
        self.word("publishing.sessionAffinity", session_affinity.as_ref());
        self.node_ports(node_ports.as_deref().unwrap_or_default());
        let UpstreamSettings { gateway_class_name } =
            upstream.as_ref().unwrap_or(&UpstreamSettings::NONE);
        let class = gateway_class_name.as_deref();
        if let Some(class) = class.filter(|class| !is_dns_subdomain(class)) {
            let class: String = class.chars().take(MAX_LISTED).collect();
            self.add(
                "publishing.upstream.gatewayClassName",
                format!("{class:?} is not a valid GatewayClass name"),
            );
        }
        self.number("publishing.annotations", annotations.len(), MAX_ENTRIES);
        self.number("publishing.labels", labels.len(), MAX_ENTRIES);
        if let Some(type_) = type_ {
            self.fields_of_type(type_, publishing);
        }
    }

    fn fields_of_type(&mut self, type_: &PublishingType, publishing: &Publishing) {
        let Publishing {
            // Allowed for every Service type.
            type_: _,
            ip_family_policy: _,
            ip_families: _,
            annotations: _,
            labels: _,
            load_balancer_class: class,
            load_balancer_source_ranges: ranges,
            allocate_load_balancer_node_ports: allocate,
            external_traffic_policy: external,
            internal_traffic_policy: internal,
            session_affinity: affinity,
            node_ports,
            upstream,
        } = publishing;
        for (field, there, allowed) in [
            ("loadBalancerClass", class.is_some(), LOAD_BALANCER_TYPES),
            (
                "loadBalancerSourceRanges",
                ranges.is_some(),
                LOAD_BALANCER_TYPES,
            ),
            (
                "allocateLoadBalancerNodePorts",
                allocate.is_some(),
                LOAD_BALANCER_TYPES,
            ),
            ("externalTrafficPolicy", external.is_some(), NODE_TYPES),
            ("nodePorts", node_ports.is_some(), NODE_TYPES),
            ("upstream", upstream.is_some(), UPSTREAM),
            (
                "internalTrafficPolicy",
                internal.is_some(),
                CLUSTER_IP_TYPES,
            ),
            ("sessionAffinity", affinity.is_some(), CLUSTER_IP_TYPES),
        ] {
            if there && !allowed.contains(type_) {
                let words: Vec<&str> = allowed.iter().map(PublishingType::as_str).collect();
                let why = format!("allowed only with type {}, not {type_}", words.join(" or "));
                self.add(&format!("publishing.{field}"), why);
            }
        }
    }

    fn node_ports(&mut self, pinned: &[PinnedNodePort]) {
        if !self.number("publishing.nodePorts", pinned.len(), MAX_LISTED) {
            return;
        }
        let (mut ports, mut node_ports) = (BTreeSet::new(), BTreeSet::new());
        for (i, PinnedNodePort { port, node_port }) in pinned.iter().enumerate() {
            for (field, number, seen) in [
                ("port", *port, &mut ports),
                ("nodePort", *node_port, &mut node_ports),
            ] {
                self.port(&format!("publishing.nodePorts[{i}].{field}"), number, seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults;
    use super::*;
    use crate::settings::configuration;
    use sesame_kinds::api::{ServiceTraffic, SesameConfigurationSpec, SessionAffinity};

    fn of(publishing: Publishing) -> String {
        let spec = SesameConfigurationSpec {
            publishing: Some(publishing),
            ..SesameConfigurationSpec::default()
        };
        faults(&configuration("settings", spec)).join("\n")
    }

    #[test]
    fn publishing_refuses_inapplicable_fields_and_duplicate_ports() {
        let pinned = |port, node_port| PinnedNodePort { port, node_port };
        let all = |type_| Publishing {
            type_: Some(type_),
            allocate_load_balancer_node_ports: Some(false),
            external_traffic_policy: Some(ServiceTraffic::Local),
            internal_traffic_policy: Some(ServiceTraffic::Cluster),
            session_affinity: Some(SessionAffinity::ClientIp),
            node_ports: Some(vec![pinned(443, 30443), pinned(80, 30080)]),
            ..Publishing::default()
        };
        assert_eq!(of(all(PublishingType::LoadBalancer)), "");
        for (type_, expected) in [
            (
                PublishingType::NodePort,
                &["allocateLoadBalancerNodePorts"][..],
            ),
            (
                PublishingType::ClusterIp,
                &[
                    "allocateLoadBalancerNodePorts",
                    "externalTrafficPolicy",
                    "nodePorts",
                ],
            ),
            (
                PublishingType::Headless,
                &[
                    "allocateLoadBalancerNodePorts",
                    "externalTrafficPolicy",
                    "nodePorts",
                    "internalTrafficPolicy",
                    "sessionAffinity",
                ],
            ),
        ] {
            let found = of(all(type_.clone()));
            let fields: Vec<&str> = found
                .lines()
                .filter_map(|line| line.strip_prefix("spec.publishing.")?.split(':').next())
                .collect();
            assert_eq!(fields, expected, "{type_}: {found}");
        }
        let upstream = UpstreamSettings {
            gateway_class_name: Some("../x".to_owned()),
        };
        let found = of(Publishing {
            type_: Some(PublishingType::Headless),
            upstream: Some(upstream),
            ..Publishing::default()
        });
        assert!(
            found.contains("upstream: allowed only with type UpstreamGateway"),
            "{found}"
        );
        assert!(
            found.contains("gatewayClassName: \"../x\" is not a valid"),
            "{found}"
        );
        let found = of(Publishing {
            external_traffic_policy: Some("local".into()),
            session_affinity: Some("Cookie".into()),
            node_ports: Some(vec![pinned(443, 0), pinned(443, 30443)]),
            ..Publishing::default()
        });
        for words in [
            "externalTrafficPolicy: \"local\" is not one of Cluster, Local",
            "sessionAffinity: \"Cookie\" is not one of ClientIP, None",
            "nodePorts[0].nodePort: 0: expected 1 to 65535",
            "nodePorts[1].port: 443 is listed twice",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
