//! Values that say how it is with Gateways, handed from those who find out to the reporter, who writes statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use crate::watch::StoredStatus;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::{Expiry, ListenerExpiries, Warning};
use sesame_gateway_api::resolve::ServiceRequest;
use sesame_gateway_api::resolve::settings::GatewaySettings;
use sesame_gateway_api::status::{RouteStatus, Statuses};
use sesame_gateway_api::world::{Kind, ObjectKey};

/// Gateways with a problem that resolution does not know of, and the reason.
pub(crate) type GatewayProblems = BTreeMap<NamespacedName, String>;

/// Reports of the provisioner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProvisionReport {
    /// Gateways that have no Service.
    pub(crate) without_service: GatewayProblems,
    /// Gateways whose second Gateway is not as it should be.
    pub(crate) without_upstream: GatewayProblems,
    /// Gateways whose fleet is not as it should be.
    pub(crate) without_fleet: GatewayProblems,
    /// Gateways whose fleet used to be managed and still runs, with the DaemonSets as text.
    pub(crate) released: GatewayProblems,
}

/// Settings of each Gateway whose parameters are valid.
pub(crate) type SettingsByGateway = Arc<BTreeMap<NamespacedName, GatewaySettings>>;

/// Wishes of each of these Gateways for its Service.
pub(crate) type ServiceRequests = Arc<BTreeMap<NamespacedName, ServiceRequest>>;

/// Hosts that serve each Gateway, by address; none until all reports are known.
pub(crate) type HostsByGateway = Option<BTreeMap<NamespacedName, BTreeMap<IpAddr, HostEndpoint>>>;

/// Addresses of Services whose Gateways are reached there; none until all Services are known.
pub(crate) type AddressesByGateway = Option<BTreeMap<NamespacedName, ServiceAddresses>>;

/// A host as an endpoint of its Gateway's Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEndpoint {
    /// Name of the Node that has the address, if any.
    pub(crate) node: Option<String>,
    /// True if the host is being drained: it serves, but not for long.
    pub(crate) draining: bool,
}

/// Addresses that a Service gives to its Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAddresses {
    /// IPs and hostnames, in the order of the Service.
    pub(crate) addresses: Vec<String>,
    /// Reason why the address is missing.
    pub(crate) awaited: Option<String>,
    /// Requested addresses that the Service does not have, each with the reason.
    pub(crate) unusable: BTreeMap<String, String>,
    /// Remarks, such as ports that a load balancer cannot open.
    pub(crate) notes: Vec<String>,
}

/// Input of the reporter: changes of the statuses in the cluster, and of the statuses from
/// resolution.
#[derive(Debug)]
pub(crate) struct StatusChange {
    /// Statuses as they are stored now; none for an object that is gone.
    pub(crate) stored: Vec<(ObjectKey, Option<StoredStatus>)>,
    /// Outcome of a resolution, if there was one.
    pub(crate) resolved: Option<Resolved>,
}

/// Outcome of a resolution.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// The whole world was resolved.
    World(Arc<ResolvedStatuses>),
    /// Some routes were resolved; nothing else has changed.
    Routes(RouteStatusUpdate),
}

/// Statuses of all objects after one resolution, without what hosts report.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedStatuses {
    /// Statuses of all objects of this controller.
    pub(crate) statuses: Statuses,
    /// Name under which a Gateway is published with others of its class; every other one is published under its own.
    pub(crate) merged: BTreeMap<NamespacedName, NamespacedName>,
    /// Revision that is to be published, by that name.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
    /// Names that cannot be published.
    pub(crate) unpublishable: GatewayProblems,
    /// Names of Gateways that take their addresses from their Services.
    pub(crate) by_service: BTreeSet<NamespacedName>,
    /// Expiry of each Gateway's certificates.
    pub(crate) expiries: BTreeMap<NamespacedName, Vec<Expiry>>,
    /// The same by listener.
    pub(crate) listener_expiries: ListenerExpiries,
}

/// Gateways that are published with others, by the name under which they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members(BTreeMap<NamespacedName, Vec<NamespacedName>>);

impl Members {
    /// Returns the Gateways that are published under a name: several, or the one that has it.
    pub(crate) fn gateways_of(&self, name: &NamespacedName) -> Vec<NamespacedName> {
        let members = self.0.get(name);
        members.cloned().unwrap_or_else(|| vec![name.clone()])
    }
}

impl ResolvedStatuses {
    /// Returns the name under which a Gateway is published.
    pub(crate) fn published_as<'a>(&'a self, gateway: &'a NamespacedName) -> &'a NamespacedName {
        self.merged.get(gateway).unwrap_or(gateway)
    }

    /// Returns true if a Gateway of this controller is published under this name.
    pub(crate) fn publishes(&self, name: &NamespacedName) -> bool {
        let alone = self.statuses.gateways.contains_key(name) && !self.merged.contains_key(name);
        alone || self.merged.values().any(|it| it == name)
    }

    /// Returns the Gateways that are published with others.
    pub(crate) fn members(&self) -> Members {
        let mut members = Members::default();
        for (gateway, name) in &self.merged {
            let of_name = members.0.entry(name.clone()).or_default();
            of_name.push(gateway.clone());
        }
        members
    }

    /// Returns the generation of a Gateway that was judged.
    pub(crate) fn generation(&self, gateway: &NamespacedName) -> i64 {
        let status = self.statuses.gateways.get(gateway);
        let first = status.and_then(|status| status.conditions.first());
        first.map_or(0, |condition| condition.observed_generation)
    }

    /// Returns the warnings about a Gateway's certificates at this time.
    pub(crate) fn warnings(&self, gateway: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let expiries = self.expiries.get(gateway).into_iter().flatten();
        expiries.filter_map(|expiry| expiry.warning(now)).collect()
    }

    /// Returns the warnings about the certificates of a ListenerSet at this time, each once.
    pub(crate) fn warnings_of_set(&self, set: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let key = Kind::ListenerSet.named(set.clone());
        let of_listeners = self.listener_expiries.get(&key.to_string());
        let expiries = of_listeners
            .into_iter()
            .flat_map(BTreeMap::values)
            .flatten();
        let warnings: BTreeSet<Warning> =
            expiries.filter_map(|expiry| expiry.warning(now)).collect();
        warnings.into_iter().collect()
    }
}

/// Statuses of some routes that differ from the previous resolution.
#[derive(Debug, Default)]
pub(crate) struct RouteStatusUpdate {
    /// The statuses.
    pub(crate) routes: Vec<(ObjectKey, RouteStatus)>,
    /// Revision that is to be published now, by name; empty if none has changed.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
}
