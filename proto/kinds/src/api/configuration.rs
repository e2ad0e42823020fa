//! `SesameConfiguration`: settings for the controller and for Gateways.
//!
//! The controller itself uses one SesameConfiguration. A GatewayClass or Gateway may refer to
//! another one through `parametersRef`, but that one must not contain controller settings. Hosts
//! without a controller read the same YAML. Every field is optional, so that configurations can be
//! merged. Decoding accepts invalid values; resolution reports them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AccessLogRules, AcmeSettings, EdgeSettings, FleetSettings, IngressSettings, IpFamily,
    IpFamilyPolicy, MetricsSettings, Object, PortEdge, PublishingType, RolloutSettings,
    SelectionMode, ServiceTraffic, SessionAffinity, TracingSettings,
};

/// Group of Sesame's own kinds.
pub const SESAME_GROUP: &str = "projectsesame.io";

/// `SesameConfiguration` v1alpha1.
pub type SesameConfiguration = Object<SesameConfigurationSpec>;

/// Settings for a controller and its Gateways, or for Gateways that use them as parameters. Unset
/// fields keep their defaults or the values from other configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SesameConfigurationSpec {
    /// Gateways that the controller serves. Allowed only in the controller's own configuration.
    pub gateway: Option<GatewaySelection>,
    /// Hosts that serve Gateways. Allowed only in the controller's own configuration.
    pub hosts: Option<HostRules>,
    /// Settings for Ingresses and HTTPProxies. Allowed only in configurations of the controller or
    /// a GatewayClass.
    pub ingress: Option<IngressSettings>,
    /// Service that the controller maintains for each Gateway.
    pub publishing: Option<Publishing>,
    /// Agents and Envoy instances that serve each Gateway.
    pub fleet: Option<FleetSettings>,
    /// Listener ports.
    pub ports: Option<PortRules>,
    /// How untrusted clients are handled. See docs/hardening.md for the defaults.
    pub edge: Option<EdgeSettings>,
    /// How untrusted clients of single ports are handled. Takes precedence over `edge` and
    /// annotations.
    #[schemars(length(max = 64))]
    pub edge_ports: Option<Vec<PortEdge>>,
    /// Rotation of active credentials.
    pub rotation: Option<RotationSettings>,
    /// When changes are applied.
    pub rollout: Option<RolloutSettings>,
    /// Access logs: which traffic is logged, in which format, and where log lines are sent. Each
    /// host's own settings determine its local log destination.
    pub access_log: Option<AccessLogRules>,
    /// Request tracing. If several configurations set this field, only the last one with mode
    /// `Enabled` or `Disabled` applies. An XTelemetryPolicy for a Gateway takes precedence.
    pub tracing: Option<TracingSettings>,
    /// Additional metrics that hosts expose.
    pub metrics: Option<MetricsSettings>,
    /// CA from which certificates are ordered. Allowed only in configurations of the controller or a
    /// GatewayClass.
    pub acme: Option<AcmeSettings>,
}

/// Gateways that a controller serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GatewaySelection {
    /// Name of the controller whose GatewayClasses are served. Defaults to
    /// `projectsesame.io/gateway-controller`.
    #[schemars(length(max = 253), regex(pattern = r"^[-.a-z0-9]+/.+$"))]
    pub controller_name: Option<String>,
    /// `Multiple`, the default, serves every Gateway of the controller's classes. `Single` serves
    /// only the oldest Gateway of the oldest class.
    pub mode: Option<SelectionMode>,
    /// Serves only this Gateway, regardless of its age.
    pub gateway_ref: Option<GatewayRef>,
    /// Allows endpoints on loopback, link-local and metadata addresses, which are rejected by
    /// default.
    pub allow_local_endpoints: Option<bool>,
    /// Enables GatewayMeshPolicies, which let Gateways outside the cluster send requests to its
    /// mesh over mTLS. Experimental; disabled by default.
    #[serde(rename = "extraMinimalOCG")]
    pub extra_minimal_ocg: Option<bool>,
}

/// Namespace and name of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct GatewayRef {
    /// Namespace of the Gateway.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Name of the Gateway.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// Rules for the hosts that serve Gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HostRules {
    /// Networks whose addresses hosts may report, such as `192.0.2.0/24`, in addition to their
    /// Nodes' addresses. None by default.
    #[schemars(length(max = 64), inner(length(max = 43)))]
    pub addresses: Option<Vec<String>>,
    /// Time without reports after which a host is considered lost, and its addresses are removed
    /// from its Gateways: `90s` to `24h`, `3m` by default, but at least 1.5 times the host's
    /// `report-seconds`. Hosts report at least every 75 seconds by default.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub lost_after: Option<String>,
}

/// Service that the controller maintains for a Gateway. Its endpoints are the hosts that serve the
/// Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Publishing {
    /// How the Gateway is published; `Headless` by default.
    #[serde(rename = "type")]
    pub type_: Option<PublishingType>,
    /// The Service's `ipFamilyPolicy`.
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// The Service's `ipFamilies`.
    #[schemars(length(max = 2))]
    pub ip_families: Option<Vec<IpFamily>>,
    /// The Service's `loadBalancerClass`. Requires type `LoadBalancer`.
    #[schemars(length(max = 317))]
    pub load_balancer_class: Option<String>,
    /// The Service's `loadBalancerSourceRanges`, such as `192.0.2.0/24`. Requires type
    /// `LoadBalancer`.
    #[schemars(length(max = 64), inner(length(max = 43)))]
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// The Service's `allocateLoadBalancerNodePorts`. Requires type `LoadBalancer`.
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// The Service's `externalTrafficPolicy`. Requires type `NodePort` or `LoadBalancer`. `Local`
    /// preserves client addresses, and nodes that do not serve the Gateway fail health checks.
    pub external_traffic_policy: Option<ServiceTraffic>,
    /// The Service's `internalTrafficPolicy`. Not allowed with types `Headless` and `None`.
    pub internal_traffic_policy: Option<ServiceTraffic>,
    /// The Service's `sessionAffinity`. Not allowed with types `Headless` and `None`.
    pub session_affinity: Option<SessionAffinity>,
    /// Fixed node ports for listener ports. Kubernetes chooses all other node ports. Requires type
    /// `NodePort` or `LoadBalancer`.
    #[schemars(length(max = 64))]
    pub node_ports: Option<Vec<PinnedNodePort>>,
    /// Second Gateway in front of this one. Requires type `UpstreamGateway`.
    pub upstream: Option<UpstreamSettings>,
    /// Annotations for the Service or, with `UpstreamGateway`, for the objects that the second
    /// Gateway's controller creates. Annotations in the Gateway's `spec.infrastructure` take
    /// precedence.
    pub annotations: BTreeMap<String, String>,
    /// Labels for the Service or, with `UpstreamGateway`, for the objects that the second Gateway's
    /// controller creates. Labels in the Gateway's `spec.infrastructure` take precedence.
    pub labels: BTreeMap<String, String>,
}

/// Settings for a second Gateway in front of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UpstreamSettings {
    /// Name of the second Gateway's class, which must differ from the Gateway's own class.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub gateway_class_name: Option<String>,
}

impl UpstreamSettings {
    /// Settings without a class name.
    pub const NONE: Self = Self {
        gateway_class_name: None,
    };
}

/// A listener port and its node port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedNodePort {
    /// The listener port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The node port, which must be in the cluster's node port range: 30000 to 32767 by default.
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: i32,
}

/// Rules for listener ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PortRules {
    /// Ports that hosts open instead of the listener ports. Hosts open all other ports unchanged,
    /// or shifted by `offset`. A host's `--port-map` takes precedence.
    #[schemars(length(max = 64))]
    pub map: Option<Vec<PortMapping>>,
    /// Number that hosts add to each port that is not in `map`; 0 by default. If it is 8000, hosts
    /// open 8080 for port 80.
    #[schemars(range(min = 0, max = 65534))]
    pub offset: Option<i32>,
    /// Ports that listeners may use, such as `443` or `8000-8999`; all by default. If several
    /// configurations set this field, all of them must allow a port.
    #[schemars(
        length(max = 64),
        inner(regex(pattern = r"^[0-9]{1,5}(-[0-9]{1,5})?$"))
    )]
    pub allowed: Option<Vec<String>>,
}

/// A port that clients use, and the port that hosts open for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct PortMapping {
    /// The listener port.
    #[schemars(range(min = 1, max = 65535))]
    pub outside: i32,
    /// The port that hosts open.
    #[schemars(range(min = 1, max = 65535))]
    pub inside: i32,
}

/// Rotation of active credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RotationSettings {
    /// How long a certificate in a CA bundle remains trusted after it is replaced: `0s`, the
    /// default, to `720h`. A change that only removes certificates takes effect immediately. A
    /// host's `--bundle-overlap-seconds` takes precedence.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub bundle_overlap: Option<String>,
}
