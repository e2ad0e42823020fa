//! Defines the state of Gateways as plain values. The tasks that determine the state pass it to the
//! reporter, which writes statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use crate::watch::StoredStatus;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::{Expiry, ListenerExpiries, Warning};
use sesame_gateway_api::resolve::settings::GatewaySettings;
use sesame_gateway_api::resolve::{ServiceRequest, UncoveredHostnames};
use sesame_gateway_api::status::{RouteStatus, Statuses};
use sesame_gateway_api::world::{Kind, ObjectKey};

/// Gateways with a problem that occurred after resolution, and a description of the problem.
pub(crate) type GatewayProblems = BTreeMap<NamespacedName, String>;

/// The provisioner's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProvisionReport {
    /// Gateways that have no Service.
    pub(crate) without_service: GatewayProblems,
    /// Gateways whose second Gateway is missing or failing.
    pub(crate) without_upstream: GatewayProblems,
    /// Gateways with a missing or incomplete fleet.
    pub(crate) without_fleet: GatewayProblems,
    /// Gateways with a released fleet that is still running, and the names of its DaemonSets.
    pub(crate) released: GatewayProblems,
}

/// Settings of each Gateway with valid parameters.
pub(crate) type SettingsByGateway = Arc<BTreeMap<NamespacedName, GatewaySettings>>;

/// Service request of each Gateway in [`SettingsByGateway`].
pub(crate) type ServiceRequests = Arc<BTreeMap<NamespacedName, ServiceRequest>>;

/// Hosts that serve each Gateway, by address. `None` until all reports are known.
pub(crate) type HostsByGateway = Option<BTreeMap<NamespacedName, BTreeMap<IpAddr, HostEndpoint>>>;

/// Addresses that Gateways get from their Services. `None` until all Services are known.
pub(crate) type AddressesByGateway = Option<BTreeMap<NamespacedName, ServiceAddresses>>;

/// A host as an endpoint of its Gateway's Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEndpoint {
    /// Name of the Node with this address, if any.
    pub(crate) node: Option<String>,
    /// True if the host is draining: it still serves, but will stop soon.
    pub(crate) draining: bool,
}

/// Addresses that a Gateway gets from its Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAddresses {
    /// IPs and hostnames, in the order in which the status lists them.
    pub(crate) addresses: Vec<String>,
    /// Reason why there is no address yet.
    pub(crate) awaited: Option<String>,
    /// Requested addresses that the Service does not have, and why.
    pub(crate) unusable: BTreeMap<String, String>,
    /// Further remarks, such as ports that a load balancer cannot open.
    pub(crate) notes: Vec<String>,
}

/// Input of the reporter: changes to the stored statuses, and to the desired statuses.
#[derive(Debug)]
pub(crate) struct StatusChange {
    /// Stored statuses; `None` for a deleted object.
    pub(crate) stored: Vec<(ObjectKey, Option<StoredStatus>)>,
    /// Result of a resolution, if there was one.
    pub(crate) resolved: Option<Resolved>,
}

/// Result of a resolution.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// The whole world was resolved.
    World(Arc<ResolvedStatuses>),
    /// Only some routes were resolved. Nothing else has changed.
    Routes(RouteStatusUpdate),
}

/// Statuses of all objects as determined by resolution, before the hosts' reports are added.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedStatuses {
    /// Statuses of all of this controller's objects.
    pub(crate) statuses: Statuses,
    /// For each jointly published Gateway, the name shared by its group. All other Gateways are
    /// published under their own names.
    pub(crate) merged: BTreeMap<NamespacedName, NamespacedName>,
    /// Current revisions, by published name.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
    /// Published names of Gateways that cannot be published, with reasons.
    pub(crate) unpublishable: GatewayProblems,
    /// Published names of Gateways that get their addresses from their Services.
    pub(crate) by_service: BTreeSet<NamespacedName>,
    /// Expiry of each Gateway's certificates.
    pub(crate) expiries: BTreeMap<NamespacedName, Vec<Expiry>>,
    /// Expiry of certificates, by listener.
    pub(crate) listener_expiries: ListenerExpiries,
    /// Listener hostnames that no certificate of their listener covers.
    pub(crate) uncovered: UncoveredHostnames,
}

/// Jointly published Gateways, by their shared name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members(BTreeMap<NamespacedName, Vec<NamespacedName>>);

impl Members {
    /// Returns the Gateways that are published under this name: all members of a group, or the one
    /// Gateway with this name.
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

    /// Returns this controller's Ingresses.
    pub(crate) fn ingresses(&self) -> impl Iterator<Item = &ObjectKey> {
        self.of_kind(Kind::Ingress)
    }

    /// Returns this controller's Ingresses and HTTPProxies.
    pub(crate) fn layered(&self) -> impl Iterator<Item = &ObjectKey> {
        self.ingresses().chain(self.of_kind(Kind::HttpProxy))
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        let first = kind.named(NamespacedName::default());
        let from_first = self.statuses.routes.range(first..);
        let all = from_first.take_while(move |(key, _)| key.kind == kind);
        all.map(|(key, _)| key)
    }

    /// Returns the Gateway to which the class of an Ingress or HTTPProxy refers.
    pub(crate) fn gateway_of_layered(&self, ingress: &ObjectKey) -> Option<NamespacedName> {
        let reference = &self
            .statuses
            .routes
            .get(ingress)?
            .parents
            .first()?
            .parent_ref;
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        Some(NamespacedName::new(namespace, &reference.name))
    }

    /// Returns true if one of this controller's Gateways is published under this name.
    pub(crate) fn publishes(&self, name: &NamespacedName) -> bool {
        let alone = self.statuses.gateways.contains_key(name) && !self.merged.contains_key(name);
        alone || self.merged.values().any(|it| it == name)
    }

    /// Returns the Gateways that are published together with others.
    pub(crate) fn members(&self) -> Members {
        let mut members = Members::default();
        for (gateway, name) in &self.merged {
            let of_name = members.0.entry(name.clone()).or_default();
            of_name.push(gateway.clone());
        }
        members
    }

    /// Returns the observed generation of a Gateway.
    pub(crate) fn generation(&self, gateway: &NamespacedName) -> i64 {
        let status = self.statuses.gateways.get(gateway);
        let first = status.and_then(|status| status.conditions.first());
        first.map_or(0, |condition| condition.observed_generation)
    }

    /// Returns the ListenerSets of each Gateway, with their generations.
    pub(crate) fn listener_sets(&self) -> BTreeMap<&NamespacedName, Vec<(&NamespacedName, i64)>> {
        let mut by_gateway: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, status) in &self.statuses.listener_sets {
            let first = status.conditions.first();
            let generation = first.map_or(0, |condition| condition.observed_generation);
            let sets = by_gateway.entry(&status.gateway).or_default();
            sets.push((name, generation));
        }
        by_gateway
    }

    /// Returns the warnings about a Gateway's certificates at the time `now`.
    pub(crate) fn warnings(&self, gateway: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let expiries = self.expiries.get(gateway).into_iter().flatten();
        expiries.filter_map(|expiry| expiry.warning(now)).collect()
    }

    /// Returns the warnings about a ListenerSet's certificates at the time `now`, without
    /// duplicates.
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

/// Route statuses that have changed since the previous resolution.
#[derive(Debug, Default)]
pub(crate) struct RouteStatusUpdate {
    /// The statuses.
    pub(crate) routes: Vec<(ObjectKey, RouteStatus)>,
    /// Changed revisions, by published name.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
}
