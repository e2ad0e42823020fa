//! Settings of one Gateway: the values of SesameConfigurations and annotations, laid over each other.
//!
//! The last one that says something about a field decides: the controller's own configuration, then the one that the
//! GatewayClass names as its parameters, then the Gateway's, then annotations of the Gateway. Only what restricts adds up: a
//! port has to be allowed by all. Nothing else decides about precedence. It must never take a part of a configuration that
//! has a fault.

pub(crate) mod access_log;
pub mod check;
mod collector_headers;
pub(crate) mod edge;
mod fleet;
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

/// Settings of one Gateway, all layers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaySettings {
    /// The Gateway's Service.
    pub publishing: Publishing,
    /// Agents and Envoys that serve the Gateway.
    pub fleet: FleetSettings,
    /// Edge settings, if any differs from the defaults.
    pub(crate) edge: Option<schema::Edge>,
    /// Exchange of credentials, if it differs from the defaults.
    pub(crate) rotation: Option<schema::Rotation>,
    /// Tracing, if a configuration says something of it.
    pub(crate) tracing: Option<ConfiguredTracing>,
    /// Form and receivers of access logs, as far as a configuration says something of them.
    pub(crate) log: ConfiguredLog,
    /// Routes whose requests are counted apart, as a snapshot names them.
    pub(crate) measured_routes: Vec<String>,
    pub(crate) ports: PortLimits,
    /// Object or annotation that decided about each field that is set.
    pub sources: BTreeMap<String, String>,
}

impl GatewaySettings {
    /// Lays the annotations of a Gateway over the layers, of which later ones decide. Returns the settings, and a message for each
    /// annotation that is not understood.
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
        // They have been checked.
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

    /// Returns true if the controller keeps a fleet for the Gateway.
    pub fn is_managed(&self) -> bool {
        self.fleet.management == Some(FleetManagement::Managed)
    }

    /// Returns the Gateways of a class that are served.
    pub(crate) fn gateways(&self) -> &FleetGateways {
        let said = self.fleet.gateways.as_ref();
        said.unwrap_or(&FleetGateways::Isolated)
    }

    /// Returns true if all Gateways of the class are served by the same Envoys.
    pub fn is_merged(&self) -> bool {
        *self.gateways() == FleetGateways::Merged
    }

    /// Returns the fields that are not as in `others`, each with the object that decided about it; ports that are allowed are left
    /// out.
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

    /// Returns true if the controller keeps the Gateway's fleet on the network of Pods.
    pub fn is_on_pod_network(&self) -> bool {
        self.is_managed() && self.fleet.workload == Some(FleetWorkload::Deployment)
    }

    /// Returns the type of the Gateway's Service. Pod addresses are short-lived, so a Gateway
    /// served by Pods gets a cluster IP.
    pub fn publishing_type(&self) -> &PublishingType {
        let said = self.publishing.type_.as_ref();
        said.unwrap_or(if self.is_on_pod_network() {
            &PublishingType::ClusterIp
        } else {
            &PublishingType::Headless
        })
    }

    /// Allows no other ports than these, which `source` names.
    pub(crate) fn allow_only(&mut self, ports: &BTreeSet<u16>, source: &str) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.ports.allow(&ports, source);
    }

    /// Returns the port that hosts open for a port of a listener.
    pub fn opened(&self, port: u16) -> u16 {
        self.ports.opened(port)
    }
}

/// Returns the snapshot's rotation settings, or `None` for the defaults.
fn of_rotation(settings: &RotationSettings) -> Option<schema::Rotation> {
    let RotationSettings { bundle_overlap } = settings;
    // It has been checked.
    let overlap = bundle_overlap.as_deref().and_then(check::milliseconds);
    let rotation = schema::Rotation {
        bundle_overlap_ms: overlap.unwrap_or_default(),
    };
    (rotation != schema::Rotation::default()).then_some(rotation)
}

/// Returns the name of a configuration as messages say it.
fn named(configuration: &SesameConfiguration) -> String {
    let key = configuration.metadata.key();
    format!("SesameConfiguration {key}")
}

/// Returns a configuration that holds these settings.
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
