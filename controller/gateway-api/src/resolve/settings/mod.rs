//! Resolves a Gateway's settings, merged from SesameConfigurations and annotations.
//!
//! The layers are, from lowest to highest precedence: the controller's own configuration, the
//! GatewayClass's parameters, the Gateway's parameters, the Gateway's annotations. Allowed ports
//! are an exception: all layers must allow a port. Only this module decides which layer takes
//! precedence. A configuration with an error must never be applied partially.

pub(crate) mod access_log;
pub mod check;
mod collector_headers;
pub(crate) mod edge;
mod fleet;
pub(crate) mod ingress;
mod merge;
mod metrics;
pub(crate) mod parameters;
pub(crate) mod ports;
pub(crate) mod tracing;

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema;

use self::access_log::ConfiguredLog;
use self::edge::EdgeDefaults;
use self::merge::Merged;
use self::ports::PortLimits;
use self::tracing::ConfiguredTracing;
#[cfg(test)]
use crate::api::SesameConfigurationSpec;
use crate::api::{
    FleetGateways, FleetManagement, FleetSettings, FleetWorkload, Labels, Publishing,
    PublishingType, RotationSettings, SesameConfiguration,
};

/// A Gateway's settings, merged from all layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaySettings {
    /// Settings for the Gateway's Service.
    pub publishing: Publishing,
    /// Settings for the fleet: the agents and Envoys that serve the Gateway.
    pub fleet: FleetSettings,
    /// Edge settings, or `None` if they equal the defaults.
    pub(crate) edge: Option<schema::Edge>,
    /// Credential rotation settings, or `None` if they equal the defaults.
    pub(crate) rotation: Option<schema::Rotation>,
    /// Tracing settings, or `None` if no configuration sets them.
    pub(crate) tracing: Option<ConfiguredTracing>,
    /// Format and receivers of access logs. A field is `None` if no configuration sets it.
    pub(crate) log: ConfiguredLog,
    /// Snapshot names of the routes that have separate request metrics.
    pub(crate) measured_routes: Vec<String>,
    pub(crate) ports: PortLimits,
    /// For each field that is set, the object or annotation that sets it.
    pub sources: BTreeMap<String, String>,
}

impl GatewaySettings {
    /// Merges the layers, lowest precedence first, and finally the Gateway's annotations. Returns
    /// the settings, and a message for each invalid annotation.
    pub(crate) fn of(layers: &[&SesameConfiguration], annotations: &Labels) -> (Self, Vec<String>) {
        let mut merged = Merged::default();
        for layer in layers {
            merged.lay(layer);
        }
        let Merged {
            publishing,
            fleet,
            edge: of_layers,
            rotation,
            tracing,
            access_log,
            log,
            measured_routes,
            ports,
            mut sources,
        } = merged;
        let mut edge = EdgeDefaults::default();
        // Invalid settings have already been rejected.
        let _ = edge.set_all(&of_layers);
        edge.log(&access_log);
        let not_understood = edge.annotate(annotations, &mut sources);
        let settings = Self {
            publishing,
            fleet,
            edge: edge.difference(),
            rotation: of_rotation(&rotation),
            tracing,
            log,
            measured_routes,
            ports,
            sources,
        };
        (settings, not_understood)
    }

    /// Returns true if the controller creates and manages the Gateway's fleet.
    pub fn is_managed(&self) -> bool {
        self.fleet.management == Some(FleetManagement::Managed)
    }

    /// Returns whether the Gateways of the class are isolated, merged or limited to one.
    pub(crate) fn gateways(&self) -> &FleetGateways {
        let said = self.fleet.gateways.as_ref();
        said.unwrap_or(&FleetGateways::Isolated)
    }

    /// Returns true if all Gateways of the class are served by the same Envoys.
    pub fn is_merged(&self) -> bool {
        *self.gateways() == FleetGateways::Merged
    }

    /// If `self` and `others` differ, returns the fields that have different sources, each with the
    /// source in `self`. Ignores allowed ports.
    pub(crate) fn differences(&self, others: &Self) -> Vec<String> {
        let Self {
            publishing,
            fleet,
            edge,
            rotation,
            tracing,
            log,
            measured_routes,
            ports,
            sources,
        } = self;
        let same = *publishing == others.publishing
            && *fleet == others.fleet
            && *edge == others.edge
            && *rotation == others.rotation
            && *tracing == others.tracing
            && *log == others.log
            && *measured_routes == others.measured_routes
            && ports.maps_as(&others.ports);
        let is_other = |(field, source): &(&String, &String)| {
            others.sources.get(*field) != Some(*source) && *field != "spec.ports.allowed"
        };
        let fields = sources.iter().filter(|field| !same && is_other(field));
        fields
            .map(|(field, source)| format!("{field} ({source})"))
            .collect()
    }

    /// Returns true if the Gateway's fleet is managed and uses the Pod network.
    pub fn is_on_pod_network(&self) -> bool {
        self.is_managed() && self.fleet.workload == Some(FleetWorkload::Deployment)
    }

    /// Returns the type of the Gateway's Service. The default for Pods is a cluster IP, because Pod
    /// addresses are short-lived.
    pub fn publishing_type(&self) -> &PublishingType {
        let said = self.publishing.type_.as_ref();
        said.unwrap_or(if self.is_on_pod_network() {
            &PublishingType::ClusterIp
        } else {
            &PublishingType::Headless
        })
    }

    /// Restricts the Gateway to these ports. `source` names the origin of the restriction in
    /// messages.
    pub(crate) fn allow_only(&mut self, ports: &BTreeSet<u16>, source: &str) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.ports.allow(&ports, source);
    }

    /// Returns the port that hosts open for a listener port.
    pub fn opened(&self, port: u16) -> u16 {
        self.ports.opened(port)
    }
}

/// Returns the rotation settings for the snapshot, or `None` to use the defaults.
fn of_rotation(settings: &RotationSettings) -> Option<schema::Rotation> {
    let RotationSettings { bundle_overlap } = settings;
    // An invalid duration has already been rejected.
    let overlap = bundle_overlap.as_deref().and_then(check::milliseconds);
    let rotation = schema::Rotation {
        bundle_overlap_ms: overlap.unwrap_or_default(),
    };
    (rotation != schema::Rotation::default()).then_some(rotation)
}

/// Formats a configuration's kind and name for messages.
fn named(configuration: &SesameConfiguration) -> String {
    let key = configuration.metadata.key();
    format!("SesameConfiguration {key}")
}

/// Returns a configuration that contains these settings.
#[cfg(test)]
fn configuration(name: &str, spec: SesameConfigurationSpec) -> SesameConfiguration {
    SesameConfiguration {
        metadata: crate::api::Metadata {
            name: name.to_owned(),
            namespace: "ns".to_owned(),
            ..crate::api::Metadata::default()
        },
        spec,
    }
}
