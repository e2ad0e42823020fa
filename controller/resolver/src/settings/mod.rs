//! Merges a Gateway's settings.
//!
//! Precedence from low to high: controller configuration, GatewayClass parameters, Gateway
//! parameters, annotations. A port is allowed only if every layer allows it. Never apply parts of
//! an invalid configuration.

pub(crate) mod access_log;
pub(crate) mod acme;
pub mod check;
mod client_addresses;
mod clients;
mod collector_headers;
pub(crate) mod edge;
mod fleet;
mod http3;
pub(crate) mod ingress;
mod merge;
mod metrics;
pub(crate) mod parameters;
mod port_clients;
pub(crate) mod ports;
mod presets;
mod rollout;
pub(crate) mod tracing;

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema;

use self::access_log::ConfiguredLog;
use self::acme::ConfiguredAcme;
pub(crate) use self::http3::OnPort;
use self::merge::Merged;
use self::port_clients::PortClients;
use self::ports::PortLimits;
use self::tracing::ConfiguredTracing;
#[cfg(test)]
use sesame_kinds::api::SesameConfigurationSpec;
use sesame_kinds::api::{
    FleetGateways, FleetManagement, FleetSettings, FleetWorkload, Labels, Publishing,
    PublishingType, RotationSettings, SesameConfiguration,
};

/// A Gateway's settings from all layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaySettings {
    /// Settings for the Service.
    pub publishing: Publishing,
    /// Settings for the Gateway's agents and Envoy instances.
    pub fleet: FleetSettings,
    pub(crate) clients: PortClients,
    /// `None` if all values are defaults.
    pub(crate) rotation: Option<schema::Rotation>,
    /// `None` if all values are defaults.
    pub(crate) rollout: Option<schema::Rollout>,
    /// `None` if no configuration sets tracing.
    pub(crate) tracing: Option<ConfiguredTracing>,
    pub(crate) log: ConfiguredLog,
    /// Route names as in the snapshot.
    pub(crate) measured_routes: Vec<String>,
    pub(crate) acme: ConfiguredAcme,
    pub(crate) ports: PortLimits,
    /// Object or annotation that sets each field.
    pub sources: BTreeMap<String, String>,
    /// Name of the class if no object declares the Gateway.
    pub implied_class: Option<String>,
}

impl GatewaySettings {
    /// `layers` are in order of increasing precedence. Also returns a message for each invalid
    /// annotation.
    pub(crate) fn of(layers: &[&SesameConfiguration], annotations: &Labels) -> (Self, Vec<String>) {
        let mut merged = Merged::default();
        for layer in layers {
            merged.apply(layer);
        }
        let Merged {
            publishing,
            fleet,
            edge,
            edge_ports,
            rotation,
            mut rollout,
            tracing,
            access_log,
            log,
            measured_routes,
            acme,
            ports,
            mut sources,
        } = merged;
        let (clients, mut not_understood) =
            PortClients::of(&edge, &edge_ports, &access_log, annotations, &mut sources);
        if let Some(digest) = annotations.get(rollout::APPROVAL) {
            let source = format!("metadata.annotations[{}]", rollout::APPROVAL);
            match rollout::check_approval(digest) {
                Ok(()) => {
                    rollout.approve_draining = Some(digest.to_owned());
                    sources.insert("spec.rollout.approveDraining".to_owned(), source);
                }
                Err(why) => not_understood.push(format!("{source}: {why}")),
            }
        }
        let mut rollout = rollout::of(&rollout);
        if let (Some(command), Some(rollout)) = (annotations.get(rollout::COMMAND), &mut rollout)
            && !rollout.stages.is_empty()
        {
            match rollout::check_command(command) {
                Ok(()) => command.clone_into(&mut rollout.command),
                Err(why) => {
                    let source = format!("metadata.annotations[{}]", rollout::COMMAND);
                    not_understood.push(format!("{source}: {why}"));
                }
            }
        }
        let settings = Self {
            publishing,
            fleet,
            clients,
            rotation: of_rotation(&rotation),
            rollout,
            tracing,
            log,
            measured_routes,
            acme,
            ports,
            sources,
            implied_class: None,
        };
        (settings, not_understood)
    }

    /// Returns true if the controller manages the fleet.
    pub fn is_managed(&self) -> bool {
        self.fleet.management == Some(FleetManagement::Managed)
    }

    pub(crate) fn gateways(&self) -> &FleetGateways {
        let setting = self.fleet.gateways.as_ref();
        setting.unwrap_or(&FleetGateways::Isolated)
    }

    /// Returns true if the same Envoy instances serve all Gateways of the class.
    pub fn is_merged(&self) -> bool {
        *self.gateways() == FleetGateways::Merged
    }

    /// Returns the fields with different sources, each with its source in `self`, or nothing if all
    /// values are equal. Ignores allowed ports.
    pub(crate) fn differences(&self, others: &Self) -> Vec<String> {
        let Self {
            publishing,
            fleet,
            clients,
            rotation,
            rollout,
            tracing,
            log,
            measured_routes,
            // Certificates belong to listeners, not to Envoy instances.
            acme: _,
            ports,
            sources,
            implied_class: _,
        } = self;
        let same = *publishing == others.publishing
            && *fleet == others.fleet
            && *clients == others.clients
            && *rotation == others.rotation
            && *rollout == others.rollout
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

    /// Returns true if the fleet is managed and uses the Pod network.
    pub fn is_on_pod_network(&self) -> bool {
        self.is_managed() && self.fleet.workload == Some(FleetWorkload::Deployment)
    }

    /// Returns the Service type. On the Pod network, the default is a cluster IP, because Pod
    /// addresses are short-lived.
    pub fn publishing_type(&self) -> &PublishingType {
        let setting = self.publishing.type_.as_ref();
        setting.unwrap_or(if self.is_on_pod_network() {
            &PublishingType::ClusterIp
        } else {
            &PublishingType::Headless
        })
    }

    /// `source` names the origin of the restriction in messages.
    pub(crate) fn allow_only(&mut self, ports: &BTreeSet<u16>, source: &str) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        self.ports.allow(&ports, source);
    }

    pub(crate) fn apply_to(&self, ports: &mut Vec<schema::Port>) {
        let listeners = ports.iter().flat_map(OnPort::of_snapshot);
        let over_udp = http3::add(&self.over_http3(listeners));
        ports.extend(over_udp);
        self.ports.open(ports);
        self.clients.apply(ports);
    }

    /// Returns the ports that the configuration selects for HTTP/3, each with the reason if it is
    /// served only over TCP.
    pub(crate) fn over_http3<'l>(
        &self,
        listeners: impl Iterator<Item = OnPort<'l>>,
    ) -> BTreeMap<u16, Result<(), &'static str>> {
        http3::select(&self.clients, listeners, |port| self.opened(port))
    }

    /// Returns the port that hosts open for a listener port.
    pub fn opened(&self, port: u16) -> u16 {
        self.ports.opened(port)
    }
}

/// Returns `None` if all values are defaults.
fn of_rotation(settings: &RotationSettings) -> Option<schema::Rotation> {
    let RotationSettings { bundle_overlap } = settings;
    // Validation has already rejected invalid durations.
    let overlap = bundle_overlap.as_deref().and_then(check::milliseconds);
    let rotation = schema::Rotation {
        bundle_overlap_ms: overlap.unwrap_or_default(),
    };
    (rotation != schema::Rotation::default()).then_some(rotation)
}

fn named(configuration: &SesameConfiguration) -> String {
    let key = configuration.metadata.key();
    format!("SesameConfiguration {key}")
}

#[cfg(test)]
fn configuration(name: &str, spec: SesameConfigurationSpec) -> SesameConfiguration {
    SesameConfiguration {
        metadata: sesame_kinds::api::Metadata {
            name: name.to_owned(),
            namespace: "ns".to_owned(),
            ..sesame_kinds::api::Metadata::default()
        },
        spec,
    }
}
