//! Validates SesameConfigurations.

mod publishing;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use sesame_proto::network::Network;

use super::parameters::Scope;
use super::{access_log, acme, fleet, ingress, metrics, port_clients, ports, rollout, tracing};
use crate::syntax::{durations, limits, names};
use sesame_kinds::api::{
    AccessLogRules, GatewayRef, GatewaySelection, HostRules, MetricsSettings, OpenEnum, PortRules,
    RotationSettings, SesameConfiguration, SesameConfigurationSpec, UnknownField,
};

/// Maximum number of entries, as in the schema.
const MAX_LISTED: usize = 64;
/// Maximum number of map entries. The schema has no such limit.
const MAX_ENTRIES: usize = 256;
/// Allowed range of `spec.hosts.lostAfter`.
const LOST_AFTER_MS: RangeInclusive<u64> = 90_000..=86_400_000;
/// Maximum time for which a certificate stays trusted after it leaves a trust bundle.
const BUNDLE_OVERLAP_MS: u64 = 2_592_000_000;

const MAX_PORT_OFFSET: i32 = 65_534;

const MIN_DURATION_MS: RangeInclusive<u64> = 1..=86_400_000;

/// Returns the errors in a configuration, each with field, value and expected value.
pub fn faults(configuration: &SesameConfiguration) -> Vec<String> {
    let SesameConfigurationSpec {
        gateway,
        hosts,
        ingress,
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
    } = &configuration.spec;
    let mut found: Vec<String> = configuration
        .metadata
        .unknown
        .iter()
        .map(|field: &UnknownField| format!("{field} is unknown to this version"))
        .collect();
    let mut faults = Faults(&mut found);
    if let Some(gateway) = gateway {
        faults.gateway(gateway);
    }
    if let Some(hosts) = hosts {
        faults.hosts(hosts);
    }
    if let Some(ingress) = ingress {
        faults.below("ingress", ingress::faults(ingress));
    }
    if let Some(publishing) = publishing {
        faults.publishing(publishing);
    }
    if let Some(ports) = ports {
        faults.ports(ports);
    }
    if let Some(rotation) = rotation {
        faults.rotation(rotation);
    }
    if let Some(rollout) = rollout {
        faults.below("rollout", rollout::faults(rollout));
    }
    if let Some(tracing) = tracing
        && let Err((_, why)) = tracing::read(tracing)
    {
        faults.0.push(format!("spec.tracing.{why}"));
    }
    if let Some(access_log) = access_log {
        faults.access_log(access_log);
    }
    if let Some(MetricsSettings { routes }) = metrics
        && let Some(Err(why)) = routes.as_deref().map(metrics::read)
    {
        faults.0.push(format!("spec.metrics.{why}"));
    }
    if let Some(acme) = acme {
        let wrong = acme::faults(acme).into_iter();
        faults.0.extend(wrong.map(|why| format!("spec.acme.{why}")));
    }
    if let Some(fleet) = fleet {
        let wrong = fleet::faults(fleet);
        faults
            .0
            .extend(wrong.iter().map(|why| format!("spec.fleet.{why}")));
    }
    let wrong = port_clients::faults(edge.as_ref(), edge_ports.as_deref().unwrap_or_default());
    found.extend(wrong.into_iter().map(|why| format!("spec.{why}")));
    found
}

pub(super) fn faults_of_parameters(
    configuration: &SesameConfiguration,
    scope: Scope<'_>,
) -> Vec<String> {
    let mut found = faults(configuration);
    let SesameConfigurationSpec {
        gateway,
        hosts,
        ingress,
        fleet,
        acme,
        ..
    } = &configuration.spec;
    for (field, there) in [("gateway", gateway.is_some()), ("hosts", hosts.is_some())] {
        if there {
            found.push(format!(
                "spec.{field} applies only in the controller's own configuration; remove it from \
                parameters"
            ));
        }
    }
    if scope == Scope::Named {
        return found;
    }
    // A Gateway's author must not choose fleet images, because fleet Pods can see processes on
    // their nodes. Nor may the author affect other Gateways.
    let fleet = fleet.as_ref();
    let images = fleet.is_some_and(|fleet| fleet.images.is_some());
    let gateways = fleet.is_some_and(|fleet| fleet.gateways.is_some());
    for (field, there) in [
        ("fleet.images", images),
        ("fleet.gateways", gateways),
        ("ingress", ingress.is_some()),
        // The controller connects to the directory, so a tenant must not choose its address.
        ("acme", acme.is_some()),
    ] {
        if there {
            found.push(format!(
                "spec.{field} applies only in the configurations of the controller and of a \
                GatewayClass; remove it from parameters of a Gateway"
            ));
        }
    }
    found
}

/// Parses a duration in a configuration.
pub fn milliseconds(text: &str) -> Option<u64> {
    durations::milliseconds(text).ok()
}

struct Faults<'f>(&'f mut Vec<String>);

impl Faults<'_> {
    fn add(&mut self, field: &str, why: impl AsRef<str>) {
        self.0.push(format!("spec.{field}: {}", why.as_ref()));
    }

    fn below(&mut self, field: &str, wrong: Vec<String>) {
        let wrong = wrong.into_iter();
        self.0
            .extend(wrong.map(|why| format!("spec.{field}.{why}")));
    }

    fn word(&mut self, field: &str, value: Option<&impl OpenEnum>) {
        if let Some((value, words)) = value.and_then(OpenEnum::unknown) {
            let value: String = value.chars().take(MAX_LISTED).collect();
            self.add(
                field,
                format!("{value:?} is not one of {}", words.join(", ")),
            );
        }
    }

    fn duration(
        &mut self,
        field: &str,
        text: Option<&String>,
        range: RangeInclusive<u64>,
        expected: &str,
    ) {
        let Some(text) = text else { return };
        match durations::milliseconds(text) {
            Err(why) => self.add(field, why),
            Ok(time) if range.contains(&time) => {}
            Ok(_) => self.add(field, format!("{text:?}: expected {expected}")),
        }
    }

    /// Ports that are already in use are in `seen`.
    fn port(&mut self, field: &str, port: i32, seen: &mut BTreeSet<i32>) {
        if names::port(port).is_none() {
            self.add(field, format!("{port}: expected 1 to 65535"));
        } else if !seen.insert(port) {
            self.add(field, format!("{port} is listed twice"));
        }
    }

    fn number(&mut self, field: &str, entries: usize, most: usize) -> bool {
        let why = limits::entries(field, entries, 0..=most).err();
        self.0.extend(why.as_ref().map(|why| format!("spec.{why}")));
        why.is_none()
    }

    fn networks(&mut self, field: &str, networks: Option<&[String]>) {
        let networks = networks.unwrap_or_default();
        if !self.number(field, networks.len(), MAX_LISTED) {
            return;
        }
        for (i, text) in networks.iter().enumerate() {
            if let Err(why) = text.parse::<Network>() {
                self.add(&format!("{field}[{i}]"), why);
            }
        }
    }

    fn gateway(&mut self, gateway: &GatewaySelection) {
        let GatewaySelection {
            controller_name,
            mode,
            gateway_ref,
            allow_local_endpoints: _,
            extra_minimal_ocg: _,
        } = gateway;
        let bad_name = |name: &&String| !name.contains('/') || name.len() > 253;
        if let Some(name) = controller_name.as_ref().filter(bad_name) {
            self.add(
                "gateway.controllerName",
                format!("{name:?}: expected a domain and a path, such as example.com/controller"),
            );
        }
        self.word("gateway.mode", mode.as_ref());
        if let Some(GatewayRef { namespace, name }) = gateway_ref
            && let Err(why) = names::check_object(namespace, name)
        {
            self.add("gateway.gatewayRef", why);
        }
    }

    fn hosts(&mut self, hosts: &HostRules) {
        let HostRules {
            addresses,
            lost_after,
        } = hosts;
        self.networks("hosts.addresses", addresses.as_deref());
        let lost_after = lost_after.as_ref();
        self.duration("hosts.lostAfter", lost_after, LOST_AFTER_MS, "90s to 24h");
    }

    fn rotation(&mut self, rotation: &RotationSettings) {
        let RotationSettings { bundle_overlap } = rotation;
        let field = "rotation.bundleOverlap";
        let range = 0..=BUNDLE_OVERLAP_MS;
        self.duration(field, bundle_overlap.as_ref(), range, "0s to 720h");
    }

    fn access_log(&mut self, rules: &AccessLogRules) {
        let AccessLogRules {
            enabled: _,
            min_status,
            min_duration,
            percent,
            format,
            on_host: _,
            sinks,
        } = rules;
        for (field, value, least, most) in [
            ("accessLog.minStatus", min_status, 100, 599),
            ("accessLog.percent", percent, 0, 100),
        ] {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                self.add(field, format!("{value}: expected {least} to {most}"));
            }
        }
        let mut wrong = format
            .as_ref()
            .map_or_else(Vec::new, access_log::faults_of_format);
        wrong.extend(
            sinks
                .as_deref()
                .map(access_log::faults_of_sinks)
                .into_iter()
                .flatten(),
        );
        let wrong = wrong.iter().map(|why| format!("spec.accessLog.{why}"));
        self.0.extend(wrong);
        let (field, min_duration) = ("accessLog.minDuration", min_duration.as_ref());
        self.duration(field, min_duration, MIN_DURATION_MS, "1ms to 24h");
    }

    fn ports(&mut self, ports: &PortRules) {
        let PortRules {
            map,
            offset,
            allowed,
        } = ports;
        if let Some(offset) = offset.filter(|offset| !(0..=MAX_PORT_OFFSET).contains(offset)) {
            self.add(
                "ports.offset",
                format!("{offset}: expected 0 to {MAX_PORT_OFFSET}"),
            );
        }
        let map = map.as_deref().unwrap_or_default();
        let allowed = allowed.as_deref().unwrap_or_default();
        if self.number("ports.map", map.len(), MAX_LISTED) {
            let (mut outsides, mut insides) = (BTreeSet::new(), BTreeSet::new());
            for (i, mapping) in map.iter().enumerate() {
                for (field, port, seen) in [
                    ("outside", mapping.outside, &mut outsides),
                    ("inside", mapping.inside, &mut insides),
                ] {
                    self.port(&format!("ports.map[{i}].{field}"), port, seen);
                }
            }
        }
        if self.number("ports.allowed", allowed.len(), MAX_LISTED) {
            for (i, text) in allowed.iter().enumerate() {
                if let Err(why) = ports::range(text) {
                    self.add(&format!("ports.allowed[{i}]"), why);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::configuration;
    use super::*;
    use sesame_kinds::api::{
        AcmeSettings, EdgeSettings, FleetImages, FleetSettings, ForwardedCertificateSettings,
        Http3Settings, IngressSettings, MeasuredRoute, PortEdge, PortMapping, ProxyClass,
        ProxyProtocolSettings, Publishing, PublishingType, RolloutSettings, SecretRef,
        TracingSettings,
    };

    fn of(spec: SesameConfigurationSpec) -> String {
        faults(&configuration("settings", spec)).join("\n")
    }

    #[test]
    fn each_fault_names_its_field_and_value() {
        let mapping = |outside, inside| PortMapping { outside, inside };
        let found = of(SesameConfigurationSpec {
            gateway: Some(GatewaySelection {
                controller_name: Some("ours".to_owned()),
                mode: Some("Several".into()),
                gateway_ref: Some(GatewayRef {
                    namespace: "../x".to_owned(),
                    name: "edge".to_owned(),
                }),
                allow_local_endpoints: None,
                extra_minimal_ocg: None,
            }),
            hosts: Some(HostRules {
                addresses: Some(vec!["192.0.2.1".to_owned()]),
                lost_after: Some("60s".to_owned()),
            }),
            ingress: Some(IngressSettings {
                watch: Some("On".into()),
                http: Some(0),
                duplicates: Some("Newest".into()),
                classes: Some(vec![ProxyClass::default()]),
                fallback_certificate: Some(SecretRef::default()),
                ..IngressSettings::default()
            }),
            publishing: Some(Publishing {
                type_: Some(PublishingType::ClusterIp),
                ip_family_policy: Some("Both".into()),
                load_balancer_class: Some("example.com/a".to_owned()),
                ..Publishing::default()
            }),
            fleet: Some(FleetSettings {
                drain_seconds: Some(0),
                ..FleetSettings::default()
            }),
            ports: Some(PortRules {
                map: Some(vec![mapping(80, 8080), mapping(81, 8080), mapping(0, 1)]),
                offset: Some(-1),
                allowed: Some(vec!["80-".to_owned()]),
            }),
            edge: Some(EdgeSettings {
                escaped_slashes: Some("redirect".into()),
                request_timeout: Some("1d".to_owned()),
                max_request_headers: Some(0),
                proxy_protocol: Some(ProxyProtocolSettings {
                    mode: Some("On".into()),
                }),
                http3: Some(Http3Settings {
                    mode: Some("On".into()),
                }),
                forward_client_certificate: Some(ForwardedCertificateSettings {
                    mode: Some("Always".into()),
                    details: None,
                }),
                ..EdgeSettings::default()
            }),
            edge_ports: Some(vec![
                PortEdge::default(),
                PortEdge {
                    port: 80,
                    edge: EdgeSettings {
                        header_case: Some("Preserve".into()),
                        request_timeout: Some("1d".to_owned()),
                        ..EdgeSettings::default()
                    },
                },
                PortEdge {
                    port: 80,
                    edge: EdgeSettings::default(),
                },
            ]),
            rotation: Some(RotationSettings {
                bundle_overlap: Some("721h".to_owned()),
            }),
            rollout: Some(RolloutSettings {
                approve_draining: Some("all".to_owned()),
                ..RolloutSettings::default()
            }),
            tracing: Some(TracingSettings {
                mode: Some("On".into()),
                ..TracingSettings::default()
            }),
            access_log: Some(AccessLogRules {
                min_status: Some(600),
                min_duration: Some("25h".to_owned()),
                ..AccessLogRules::default()
            }),
            metrics: Some(MetricsSettings {
                routes: Some(vec![MeasuredRoute {
                    kind: "TCPRoute".into(),
                    namespace: "shop".to_owned(),
                    name: "cart".to_owned(),
                }]),
            }),
            acme: Some(AcmeSettings {
                directory: Some("ca.test".to_owned()),
                ..AcmeSettings::default()
            }),
        });
        for words in [
            "spec.gateway.controllerName: \"ours\"",
            "spec.gateway.mode: \"Several\" is not one of Multiple, Single",
            "spec.gateway.gatewayRef: namespace \"../x\"",
            "spec.hosts.addresses[0]: \"192.0.2.1\"",
            "spec.hosts.lostAfter: \"60s\": expected 90s to 24h",
            "spec.ingress.watch \"On\" is not one of Off, Report, Serve",
            "spec.ingress.http: 0: expected 1 to 65535",
            "spec.ingress.duplicates \"Newest\" is not one of Oldest, AllInvalid",
            "spec.ingress.classes[0].name \"\": expected a unique name that is not empty",
            "spec.ingress.fallbackCertificate: namespace \"\"",
            "spec.publishing.ipFamilyPolicy: \"Both\"",
            "spec.publishing.loadBalancerClass: allowed only with type LoadBalancer, not ClusterIP",
            "spec.fleet.drainSeconds: 0: expected 1 to 3600",
            "spec.ports.map[1].inside: 8080 is listed twice",
            "spec.ports.map[2].outside: 0: expected",
            "spec.ports.offset: -1: expected 0 to 65534",
            "spec.ports.allowed[0]: \"80-\"",
            "spec.edge.escapedSlashes: \"redirect\" is not one of Redirect,",
            "spec.edge.requestTimeout: \"1d\" is not a duration",
            "spec.edge.proxyProtocol.mode: \"On\" is not one of Required,",
            "spec.edgePorts[0].port: 0: expected 1 to 65535",
            "spec.edgePorts[2].port: 80 is listed twice",
            "spec.edgePorts[1].edge.headerCase: also affects connections to backends",
            "spec.edgePorts[1].edge.requestTimeout: \"1d\" is not a duration",
            "spec.edge.http3.mode: \"On\" is not one of Enabled, Disabled",
            "spec.edge.forwardClientCertificate.mode: \"Always\" is not one of Sanitize,",
            "spec.rotation.bundleOverlap: \"721h\": expected 0s to 720h",
            "spec.rollout.approveDraining: \"all\": expected the 16 digits",
            "spec.accessLog.minStatus: 600: expected 100 to 599",
            "spec.accessLog.minDuration: \"25h\": expected 1ms to 24h",
            "spec.tracing.mode \"On\" is not supported; expected Enabled,",
            "spec.metrics.routes[0].kind \"TCPRoute\" is not one of HTTPRoute, GRPCRoute",
            "spec.acme.directory: \"ca.test\": expected a URL",
            "spec.edge.maxRequestHeaders: \"0\" is not a number from 1 to 10000",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
        assert_eq!(of(SesameConfigurationSpec::default()), "");
    }
    #[test]
    fn gateway_parameters_refuse_fleet_images_and_gateways() {
        let with_both = configuration(
            "settings",
            SesameConfigurationSpec {
                fleet: Some(FleetSettings {
                    images: Some(FleetImages::default()),
                    gateways: Some("Single".into()),
                    ..FleetSettings::default()
                }),
                ..SesameConfigurationSpec::default()
            },
        );
        assert!(faults_of_parameters(&with_both, Scope::Named).is_empty());
        let found = faults_of_parameters(&with_both, Scope::Of("ns")).join("; ");
        assert!(found.contains("spec.fleet.images applies only"), "{found}");
        assert!(
            found.contains("spec.fleet.gateways applies only"),
            "{found}"
        );
    }
}
