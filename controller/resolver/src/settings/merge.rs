//! Merges configurations by field, and records which object set each field.

use std::collections::BTreeMap;

use super::access_log::{ConfiguredLog, ConfiguredSinks};
use super::acme::ConfiguredAcme;
use super::ports::PortLimits;
use super::tracing::{self, ConfiguredTracing};
use super::{metrics, named};
use crate::syntax::names;
use sesame_kinds::api::{
    AccessLogRules, AcmeSettings, ContainerResources, EdgeSettings, FleetImages, FleetResources,
    FleetSettings, MetricsSettings, PortEdge, PortRules, Publishing, RolloutSettings,
    RotationSettings, SesameConfiguration, SesameConfigurationSpec, UpstreamSettings,
};

#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) publishing: Publishing,
    pub(super) fleet: FleetSettings,
    pub(super) edge: EdgeSettings,
    pub(super) edge_ports: BTreeMap<u16, EdgeSettings>,
    pub(super) rotation: RotationSettings,
    pub(super) rollout: RolloutSettings,
    pub(super) access_log: AccessLogRules,
    pub(super) log: ConfiguredLog,
    pub(super) tracing: Option<ConfiguredTracing>,
    /// Sorted route names.
    pub(super) measured_routes: Vec<String>,
    pub(super) acme: ConfiguredAcme,
    pub(super) ports: PortLimits,
    pub(super) sources: BTreeMap<String, String>,
}

/// Overwrites the fields in `$on` that the layer `$of` sets. The caller merges the fields in
/// braces. The compiler reports fields that are in neither list.
macro_rules! overlay {
    ($type:ident { $($other:ident),* } = $of:expr, over $on:expr, $sources:expr, $source:expr; $($field:ident as $path:literal,)+) => {
        let $type { $($field,)+ $($other,)* } = $of;
        $(if $field.is_some() {
            $on.$field.clone_from($field);
            $sources.insert($path.to_owned(), $source.to_owned());
        })+
    };
}

impl Merged {
    pub(super) fn apply(&mut self, layer: &SesameConfiguration) {
        let source = named(layer);
        // These fields do not configure individual Gateways.
        let SesameConfigurationSpec {
            gateway: _,
            hosts: _,
            ingress: _,
            publishing,
            fleet,
            ports,
            edge,
            edge_ports,
            rotation,
            rollout,
            tracing,
            access_log,
            metrics,
            acme,
        } = &layer.spec;
        if let Some(publishing) = publishing {
            self.publishing(publishing, &source);
        }
        if let Some(fleet) = fleet {
            self.fleet(fleet, &source);
        }
        if let Some(edge) = edge {
            lay_edge(
                edge,
                &mut self.edge,
                &mut self.sources,
                "spec.edge",
                &source,
            );
        }
        if let Some(ports) = edge_ports {
            self.edge_ports(ports, &source);
        }
        if let Some(rotation) = rotation {
            overlay! { RotationSettings {} = rotation, over self.rotation, self.sources, &source;
                bundle_overlap as "spec.rotation.bundleOverlap",
            }
        }
        if let Some(rollout) = rollout {
            self.rollout(rollout, &source);
        }
        if let Some(spec) = tracing.as_ref().filter(|it| tracing::is_set(it)) {
            self.sources
                .insert("spec.tracing".to_owned(), source.clone());
            self.tracing = Some(ConfiguredTracing {
                namespace: layer.metadata.namespace.clone(),
                spec: spec.clone(),
            });
        }
        if let Some(access_log) = access_log {
            self.access_log(access_log, &layer.metadata.namespace, &source);
        }
        if let Some(MetricsSettings {
            routes: Some(routes),
        }) = metrics
        {
            // Validation has already rejected invalid lists.
            self.measured_routes = metrics::read(routes).unwrap_or_default();
            self.sources
                .insert("spec.metrics.routes".to_owned(), source.clone());
        }
        if let Some(acme) = acme {
            self.acme(acme, &layer.metadata.namespace, &source);
        }
        if let Some(ports) = ports {
            self.port_rules(ports, &source);
        }
    }

    fn rollout(&mut self, rollout: &RolloutSettings, source: &str) {
        overlay! { RolloutSettings {} = rollout, over self.rollout, self.sources, source;
            hold_draining as "spec.rollout.holdDraining",
            approve_draining as "spec.rollout.approveDraining",
            windows as "spec.rollout.windows",
            stages as "spec.rollout.stages",
            on_failure as "spec.rollout.onFailure",
            max_error_increase as "spec.rollout.maxErrorIncrease",
        }
    }

    fn acme(&mut self, acme: &AcmeSettings, namespace: &str, source: &str) {
        namespace.clone_into(&mut self.acme.namespace);
        if acme.external_account.is_some() {
            namespace.clone_into(&mut self.acme.account_namespace);
        }
        overlay! { AcmeSettings {} = acme, over self.acme.spec, self.sources, source;
            directory as "spec.acme.directory",
            email as "spec.acme.email",
            terms_agreed as "spec.acme.termsAgreed",
            challenge as "spec.acme.challenge",
            ca_bundle as "spec.acme.caBundle",
            external_account as "spec.acme.externalAccount",
        }
    }

    fn port_rules(&mut self, rules: &PortRules, source: &str) {
        let PortRules {
            map,
            offset,
            allowed,
        } = rules;
        let mut record = |field: &str| {
            let field = format!("spec.ports.{field}");
            self.sources.insert(field, source.to_owned());
        };
        if let Some(map) = map {
            self.ports.map(map, source);
            record("map");
        }
        if let Some(offset) = offset {
            self.ports.set_offset(*offset, source);
            record("offset");
        }
        if let Some(allowed) = allowed {
            self.ports.allow(allowed, source);
            record("allowed");
        }
    }

    fn access_log(&mut self, rules: &AccessLogRules, namespace: &str, source: &str) {
        overlay! { AccessLogRules { format, on_host, sinks } = rules, over self.access_log, self.sources, source;
            enabled as "spec.accessLog.enabled",
            min_status as "spec.accessLog.minStatus",
            min_duration as "spec.accessLog.minDuration",
            percent as "spec.accessLog.percent",
        }
        let mut record = |field: &str| {
            let field = format!("spec.accessLog.{field}");
            self.sources.insert(field, source.to_owned());
        };
        if format.is_some() {
            self.log.format.clone_from(format);
            record("format");
        }
        if on_host.is_some() {
            self.log.on_host = *on_host;
            record("onHost");
        }
        if let Some(sinks) = sinks {
            self.log.sinks = Some(ConfiguredSinks {
                namespace: namespace.to_owned(),
                sinks: sinks.clone(),
            });
            record("sinks");
        }
    }

    fn publishing(&mut self, publishing: &Publishing, source: &str) {
        overlay! { Publishing { upstream, annotations, labels } = publishing, over self.publishing, self.sources, source;
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
        if let Some(upstream) = upstream {
            let under = self.publishing.upstream.get_or_insert_default();
            overlay! { UpstreamSettings {} = upstream, over under, self.sources, source;
                gateway_class_name as "spec.publishing.upstream.gatewayClassName",
            }
        }
        for (of, on, field) in [
            (annotations, &mut self.publishing.annotations, "annotations"),
            (labels, &mut self.publishing.labels, "labels"),
        ] {
            let path = format!("spec.publishing.{field}");
            lay_entries(of, on, &mut self.sources, &path, source);
        }
    }

    fn fleet(&mut self, fleet: &FleetSettings, source: &str) {
        overlay! { FleetSettings { images, resources } = fleet, over self.fleet, self.sources, source;
            management as "spec.fleet.management",
            gateways as "spec.fleet.gateways",
            workload as "spec.fleet.workload",
            replicas as "spec.fleet.replicas",
            image_pull_policy as "spec.fleet.imagePullPolicy",
            node_selector as "spec.fleet.nodeSelector",
            tolerations as "spec.fleet.tolerations",
            drain_seconds as "spec.fleet.drainSeconds",
            trusted_hops as "spec.fleet.trustedHops",
            metrics_port as "spec.fleet.metricsPort",
        }
        if let Some(images) = images {
            let under = self.fleet.images.get_or_insert_default();
            overlay! { FleetImages {} = images, over under, self.sources, source;
                agent as "spec.fleet.images.agent",
                envoy as "spec.fleet.images.envoy",
            }
        }
        let Some(FleetResources { agent, envoy }) = resources else {
            return;
        };
        let under = self.fleet.resources.get_or_insert_default();
        for (of, on, container) in [
            (agent, &mut under.agent, "agent"),
            (envoy, &mut under.envoy, "envoy"),
        ] {
            let Some(ContainerResources { limits, requests }) = of else {
                continue;
            };
            let on = on.get_or_insert_default();
            for (of, on, field) in [
                (limits, &mut on.limits, "limits"),
                (requests, &mut on.requests, "requests"),
            ] {
                let path = format!("spec.fleet.resources.{container}.{field}");
                lay_entries(of, on, &mut self.sources, &path, source);
            }
        }
    }

    fn edge_ports(&mut self, ports: &[PortEdge], source: &str) {
        for PortEdge { port, edge } in ports {
            // Validation has already rejected invalid ports.
            let Some(port) = names::port(*port) else {
                continue;
            };
            let (under, path) = (
                self.edge_ports.entry(port),
                format!("spec.edgePorts[{port}]"),
            );
            lay_edge(edge, under.or_default(), &mut self.sources, &path, source);
        }
    }
}

fn lay_edge(
    edge: &EdgeSettings,
    under: &mut EdgeSettings,
    sources: &mut BTreeMap<String, String>,
    path: &str,
    source: &str,
) {
    let mut own = BTreeMap::new();
    overlay! { EdgeSettings {} = edge, over under, own, source;
        preset as "preset",
        escaped_slashes as "escapedSlashes",
        repeated_slashes as "repeatedSlashes",
        header_underscores as "headerUnderscores",
        request_timeout as "requestTimeout",
        request_headers_timeout as "requestHeadersTimeout",
        stream_idle_timeout as "streamIdleTimeout",
        connection_idle_timeout as "connectionIdleTimeout",
        tls_handshake_timeout as "tlsHandshakeTimeout",
        udp_session_timeout as "udpSessionTimeout",
        max_request_headers_kib as "maxRequestHeadersKib",
        max_request_headers as "maxRequestHeaders",
        upgrades as "upgrades",
        other_upgrades as "otherUpgrades",
        http10 as "http10",
        header_case as "headerCase",
        expect_continue as "expectContinue",
        trailing_dots as "trailingDots",
        request_id as "requestId",
        server_header as "serverHeader",
        via_header as "viaHeader",
        max_response_headers_kib as "maxResponseHeadersKib",
        max_response_headers as "maxResponseHeaders",
        max_connection_age as "maxConnectionAge",
        max_connection_requests as "maxConnectionRequests",
        keepalive_interval as "keepaliveInterval",
        max_concurrent_streams as "maxConcurrentStreams",
        connection_buffer_kib as "connectionBufferKib",
        client_address as "clientAddress",
        proxy_protocol as "proxyProtocol",
        http3 as "http3",
        forward_client_certificate as "forwardClientCertificate",
    }
    let own = own.into_iter();
    sources.extend(own.map(|(field, source)| (format!("{path}.{field}"), source)));
}

/// Merges entries by name, and records each entry's source.
fn lay_entries<T: Clone>(
    of: &BTreeMap<String, T>,
    on: &mut BTreeMap<String, T>,
    sources: &mut BTreeMap<String, String>,
    path: &str,
    source: &str,
) {
    for (name, value) in of {
        on.insert(name.clone(), value.clone());
        sources.insert(format!("{path}[{name}]"), source.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::configuration;
    use super::*;
    use sesame_kinds::api::{FleetManagement, PublishingType, Quantity, SesameConfigurationSpec};

    #[test]
    fn later_layers_override_fields_and_record_source() {
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
        merged.apply(&layer("class", class, Some("5m")));
        merged.apply(&layer("gateway", gateway, None));
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
    #[test]
    fn fleet_merges_by_field_and_resources_by_name() {
        let resources = |name: &str, quantity: &str| FleetResources {
            envoy: Some(ContainerResources {
                limits: [(name.to_owned(), Quantity(quantity.to_owned()))].into(),
                ..ContainerResources::default()
            }),
            agent: None,
        };
        let class = FleetSettings {
            management: Some(FleetManagement::Managed),
            images: Some(FleetImages {
                agent: Some("a:1".to_owned()),
                envoy: Some("e:1".to_owned()),
            }),
            resources: Some(resources("memory", "1Gi")),
            ..FleetSettings::default()
        };
        let gateway = FleetSettings {
            images: Some(FleetImages {
                envoy: Some("e:2".to_owned()),
                agent: None,
            }),
            node_selector: Some([("edge".to_owned(), "yes".to_owned())].into()),
            resources: Some(resources("cpu", "2")),
            ..FleetSettings::default()
        };
        let mut merged = Merged::default();
        for (name, fleet) in [("class", class), ("gateway", gateway)] {
            let spec = SesameConfigurationSpec {
                fleet: Some(fleet),
                ..SesameConfigurationSpec::default()
            };
            merged.apply(&configuration(name, spec));
        }
        let Merged { fleet, sources, .. } = merged;
        assert_eq!(fleet.management, Some(FleetManagement::Managed));
        let images = fleet.images.unwrap();
        assert_eq!(images.agent.as_deref(), Some("a:1"));
        assert_eq!(images.envoy.as_deref(), Some("e:2"));
        let limits = fleet.resources.unwrap().envoy.unwrap().limits;
        assert_eq!(limits.len(), 2, "{limits:?}");
        assert!(sources["spec.fleet.images.envoy"].ends_with("gateway"));
        assert!(sources["spec.fleet.resources.envoy.limits[memory]"].ends_with("class"));
    }
}
