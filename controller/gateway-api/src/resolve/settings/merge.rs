//! Configurations laid over each other, field by field, with the object that decided about each.

use std::collections::BTreeMap;

use super::named;
use super::ports::PortLimits;
use crate::api::{
    EdgeSettings, PortRules, Publishing, SesameConfiguration, SesameConfigurationSpec,
};

/// Layers together.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) publishing: Publishing,
    pub(super) edge: EdgeSettings,
    pub(super) ports: PortLimits,
    pub(super) sources: BTreeMap<String, String>,
}

/// Replaces fields by those of the layer that are there, and notes the source of each. Fields that are laid in another way
/// stand in the braces: every field of the type has to be named, so that a new one is not forgotten.
macro_rules! lay {
    ($type:ident { $($other:ident),* } = $of:expr, over $on:expr, $sources:expr, $source:expr; $($field:ident as $path:literal,)+) => {
        let $type { $($field,)+ $($other,)* } = $of;
        $(if $field.is_some() {
            $on.$field.clone_from($field);
            $sources.insert($path.to_owned(), $source.to_owned());
        })+
    };
}

impl Merged {
    /// Lays a configuration over those before.
    pub(super) fn lay(&mut self, layer: &SesameConfiguration) {
        let source = named(layer);
        // The first two are the controller's own.
        let SesameConfigurationSpec {
            gateway: _,
            hosts: _,
            publishing,
            ports,
            edge,
        } = &layer.spec;
        if let Some(publishing) = publishing {
            self.publishing(publishing, &source);
        }
        if let Some(edge) = edge {
            self.edge(edge, &source);
        }
        if let Some(PortRules { map, allowed }) = ports {
            if let Some(map) = map {
                self.ports.map(map, &source);
                self.sources
                    .insert("spec.ports.map".to_owned(), source.clone());
            }
            if let Some(allowed) = allowed {
                self.ports.allow(allowed, &source);
                self.sources
                    .insert("spec.ports.allowed".to_owned(), source.clone());
            }
        }
    }

    fn publishing(&mut self, publishing: &Publishing, source: &str) {
        lay! { Publishing { annotations, labels } = publishing, over self.publishing, self.sources, source;
            type_ as "spec.publishing.type",
            ip_family_policy as "spec.publishing.ipFamilyPolicy",
            ip_families as "spec.publishing.ipFamilies",
            load_balancer_class as "spec.publishing.loadBalancerClass",
            load_balancer_source_ranges as "spec.publishing.loadBalancerSourceRanges",
            allocate_load_balancer_node_ports as "spec.publishing.allocateLoadBalancerNodePorts",
            external_traffic_policy as "spec.publishing.externalTrafficPolicy",
            internal_traffic_policy as "spec.publishing.internalTrafficPolicy",
            session_affinity as "spec.publishing.sessionAffinity",
            node_ports as "spec.publishing.nodePorts",
        }
        for (of, on, field) in [
            (annotations, &mut self.publishing.annotations, "annotations"),
            (labels, &mut self.publishing.labels, "labels"),
        ] {
            for (name, value) in of {
                on.insert(name.clone(), value.clone());
                let path = format!("spec.publishing.{field}[{name}]");
                self.sources.insert(path, source.to_owned());
            }
        }
    }

    fn edge(&mut self, edge: &EdgeSettings, source: &str) {
        lay! { EdgeSettings {} = edge, over self.edge, self.sources, source;
            escaped_slashes as "spec.edge.escapedSlashes",
            repeated_slashes as "spec.edge.repeatedSlashes",
            header_underscores as "spec.edge.headerUnderscores",
            request_timeout as "spec.edge.requestTimeout",
            request_headers_timeout as "spec.edge.requestHeadersTimeout",
            stream_idle_timeout as "spec.edge.streamIdleTimeout",
            connection_idle_timeout as "spec.edge.connectionIdleTimeout",
            tls_handshake_timeout as "spec.edge.tlsHandshakeTimeout",
            udp_session_timeout as "spec.edge.udpSessionTimeout",
            max_request_headers_kib as "spec.edge.maxRequestHeadersKib",
            max_request_headers as "spec.edge.maxRequestHeaders",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::configuration;
    use super::*;
    use crate::api::{PublishingType, SesameConfigurationSpec};

    #[test]
    fn later_layers_decide_field_by_field_and_each_field_knows_its_source() {
        let layer = |name: &str, publishing: Publishing, timeout: Option<&str>| {
            let spec = SesameConfigurationSpec {
                publishing: Some(publishing),
                edge: Some(EdgeSettings {
                    request_timeout: timeout.map(str::to_owned),
                    ..EdgeSettings::default()
                }),
                ..SesameConfigurationSpec::default()
            };
            configuration(name, spec)
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let class = Publishing {
            type_: Some(PublishingType::LoadBalancer),
            load_balancer_class: Some("example.com/a".to_owned()),
            annotations: [pair("a", "1"), pair("b", "1")].into(),
            ..Publishing::default()
        };
        let gateway = Publishing {
            load_balancer_class: Some("example.com/b".to_owned()),
            annotations: [pair("b", "2")].into(),
            ..Publishing::default()
        };
        let mut merged = Merged::default();
        merged.lay(&layer("class", class, Some("5m")));
        merged.lay(&layer("gateway", gateway, None));
        let Merged {
            publishing,
            edge,
            sources,
            ..
        } = merged;
        assert_eq!(publishing.type_, Some(PublishingType::LoadBalancer));
        assert_eq!(
            publishing.load_balancer_class.as_deref(),
            Some("example.com/b")
        );
        assert_eq!(
            publishing.annotations,
            [pair("a", "1"), pair("b", "2")].into()
        );
        assert_eq!(edge.request_timeout.as_deref(), Some("5m"));
        let source = |field: &str| sources.get(field).map(String::as_str);
        assert_eq!(
            source("spec.publishing.type"),
            Some("SesameConfiguration ns/class")
        );
        assert_eq!(
            source("spec.publishing.loadBalancerClass"),
            Some("SesameConfiguration ns/gateway")
        );
    }
}
