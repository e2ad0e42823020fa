//! Defines Gateways' states as plain values, from which the reporter writes statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;

use crate::watch::StoredStatus;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::{Expiry, ListenerExpiries, Warning};
use sesame_kinds::status::{RouteStatus, Statuses};
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_resolver::settings::GatewaySettings;
use sesame_resolver::{ServiceRequest, UncoveredHostnames};

/// Problems that occurred after resolution.
pub(crate) type GatewayProblems = BTreeMap<NamespacedName, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProvisionReport {
    pub(crate) without_service: GatewayProblems,
    pub(crate) without_upstream: GatewayProblems,
    /// Why fleets are missing or incomplete.
    pub(crate) without_fleet: GatewayProblems,
    /// Messages name the DaemonSets that are still running.
    pub(crate) released: GatewayProblems,
}

pub(crate) type SettingsByGateway = Arc<BTreeMap<NamespacedName, GatewaySettings>>;

pub(crate) type ServiceRequests = Arc<BTreeMap<NamespacedName, ServiceRequest>>;

/// Each Gateway's hosts by address. `None` until all reports are known.
pub(crate) type HostsByGateway = Option<BTreeMap<NamespacedName, BTreeMap<IpAddr, HostEndpoint>>>;

/// `None` until all Services are known.
pub(crate) type AddressesByGateway = Option<BTreeMap<NamespacedName, ServiceAddresses>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEndpoint {
    pub(crate) node: Option<String>,
    /// The host still serves, but will stop soon.
    pub(crate) draining: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAddresses {
    /// In the order in which the status lists them.
    pub(crate) addresses: Vec<String>,
    /// Why there is no address yet.
    pub(crate) awaited: Option<String>,
    /// Requested addresses that the Service does not have, with reasons.
    pub(crate) unusable: BTreeMap<String, String>,
    /// Warnings, for example about ports that a load balancer cannot open.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct StatusChange {
    /// `None` for a deleted object.
    pub(crate) stored: Vec<(ObjectKey, Option<StoredStatus>)>,
    pub(crate) resolved: Option<Resolved>,
}

#[derive(Debug)]
pub(crate) enum Resolved {
    World(Arc<ResolvedStatuses>),
    /// Only routes have changed.
    Routes(RouteStatusUpdate),
}

/// Statuses before the hosts' reports are added.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedStatuses {
    pub(crate) statuses: Statuses,
    /// The published name of each merged Gateway.
    pub(crate) merged: BTreeMap<NamespacedName, NamespacedName>,
    /// Keyed by published name.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
    /// Keyed by published name, with reasons.
    pub(crate) unpublishable: GatewayProblems,
    /// Published names of Gateways that get their addresses from a Service.
    pub(crate) by_service: BTreeSet<NamespacedName>,
    pub(crate) expiries: BTreeMap<NamespacedName, Vec<Expiry>>,
    pub(crate) listener_expiries: ListenerExpiries,
    /// The settings for Ingresses and HTTPProxies are unknown, so their statuses stay unchanged.
    pub(crate) layers_unknown: bool,
    /// Gateways whose Ingresses and HTTPProxies keep their statuses, because the parameters of their
    /// class are invalid.
    pub(crate) kept_layers: BTreeSet<NamespacedName>,
    /// Hostnames that no certificate of their listener covers.
    pub(crate) uncovered: UncoveredHostnames,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members(BTreeMap<NamespacedName, Vec<NamespacedName>>);

impl Members {
    /// Returns all members of a group, or the one Gateway with this name.
    pub(crate) fn gateways_of(&self, name: &NamespacedName) -> Vec<NamespacedName> {
        let members = self.0.get(name);
        members.cloned().unwrap_or_else(|| vec![name.clone()])
    }
}

impl ResolvedStatuses {
    pub(crate) fn published_as<'a>(&'a self, gateway: &'a NamespacedName) -> &'a NamespacedName {
        self.merged.get(gateway).unwrap_or(gateway)
    }

    pub(crate) fn ingresses(&self) -> impl Iterator<Item = &ObjectKey> {
        self.routes_of_kind(Kind::Ingress)
    }

    pub(crate) fn layered(&self) -> impl Iterator<Item = &ObjectKey> {
        self.ingresses().chain(self.routes_of_kind(Kind::HttpProxy))
    }

    fn routes_of_kind(&self, kind: Kind) -> impl Iterator<Item = &ObjectKey> {
        let first = kind.named(NamespacedName::default());
        let from_first = self.statuses.routes.range(first..);
        let all = from_first.take_while(move |(key, _)| key.kind == kind);
        all.map(|(key, _)| key)
    }

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

    pub(crate) fn publishes(&self, name: &NamespacedName) -> bool {
        let alone = self.statuses.gateways.contains_key(name) && !self.merged.contains_key(name);
        alone || self.merged.values().any(|it| it == name)
    }

    pub(crate) fn members(&self) -> Members {
        let mut members = Members::default();
        for (gateway, name) in &self.merged {
            let gateways = members.0.entry(name.clone()).or_default();
            gateways.push(gateway.clone());
        }
        members
    }

    pub(crate) fn generation(&self, gateway: &NamespacedName) -> i64 {
        let status = self.statuses.gateways.get(gateway);
        let first = status.and_then(|status| status.conditions.first());
        first.map_or(0, |condition| condition.observed_generation)
    }

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

    pub(crate) fn warnings(&self, gateway: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let expiries = self.expiries.get(gateway).into_iter().flatten();
        expiries.filter_map(|expiry| expiry.warning(now)).collect()
    }

    /// Removes duplicates.
    pub(crate) fn warnings_of_set(&self, set: &NamespacedName, now: Timestamp) -> Vec<Warning> {
        let key = Kind::ListenerSet.named(set.clone());
        let listener_expiries = self.listener_expiries.get(&key.to_string());
        let expiries = listener_expiries
            .into_iter()
            .flat_map(BTreeMap::values)
            .flatten();
        let warnings: BTreeSet<Warning> =
            expiries.filter_map(|expiry| expiry.warning(now)).collect();
        warnings.into_iter().collect()
    }
}

#[derive(Debug, Default)]
pub(crate) struct RouteStatusUpdate {
    pub(crate) routes: Vec<(ObjectKey, RouteStatus)>,
    /// Keyed by published name.
    pub(crate) revisions: BTreeMap<NamespacedName, String>,
}
