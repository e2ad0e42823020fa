//! Enumerates the conditions of all kinds of status, so that no other module needs to.

use serde::Serialize;

use super::{Condition, GatewayClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus};
use super::{PolicyStatus, RouteStatus, Statuses};
use crate::api::NamespacedName;
use crate::world::Kind;

/// A part of a status with its own list of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section<'a> {
    /// The object itself.
    Object,
    /// A listener, with index and name.
    Listener(usize, &'a str),
    /// A parent of a route, by index.
    Parent(usize),
    /// An ancestor of a policy, by index.
    Ancestor(usize),
}

/// The status of an object.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum ObjectStatus<'a> {
    /// Status of a GatewayClass.
    GatewayClass(&'a GatewayClassStatus),
    /// Status of a Gateway.
    Gateway(&'a GatewayStatus),
    /// Status of a ListenerSet.
    ListenerSet(&'a ListenerSetStatus),
    /// Status of a route.
    Route(&'a RouteStatus),
    /// Status of a policy or XBackend.
    Policy(&'a PolicyStatus),
}

impl<'a> ObjectStatus<'a> {
    /// Returns the conditions of each section.
    pub fn sections(self) -> Vec<(Section<'a>, &'a [Condition])> {
        let object = |conditions: &'a [Condition]| vec![(Section::Object, conditions)];
        let with_listeners = |conditions: &'a [Condition], listeners: &'a [ListenerStatus]| {
            let mut sections = object(conditions);
            sections.extend(listeners.iter().enumerate().map(|(i, listener)| {
                let section = Section::Listener(i, &listener.name);
                (section, listener.conditions.as_slice())
            }));
            sections
        };
        match self {
            Self::GatewayClass(status) => object(&status.conditions),
            Self::Gateway(status) => with_listeners(&status.conditions, &status.listeners),
            Self::ListenerSet(status) => with_listeners(&status.conditions, &status.listeners),
            Self::Route(status) => (0..)
                .zip(&status.parents)
                .map(|(i, parent)| (Section::Parent(i), parent.conditions.as_slice()))
                .collect(),
            Self::Policy(status) => (0..)
                .zip(&status.ancestors)
                .map(|(i, ancestor)| (Section::Ancestor(i), ancestor.conditions.as_slice()))
                .collect(),
        }
    }
}

impl Statuses {
    /// Returns the status of every object.
    pub fn objects(&self) -> impl Iterator<Item = (Kind, &NamespacedName, ObjectStatus<'_>)> {
        let Self {
            gateway_classes,
            gateways,
            listener_sets,
            routes,
            policies,
        } = self;
        let classes = gateway_classes
            .iter()
            .map(|(name, status)| (Kind::GatewayClass, name, ObjectStatus::GatewayClass(status)));
        let gateways = gateways
            .iter()
            .map(|(name, status)| (Kind::Gateway, name, ObjectStatus::Gateway(status)));
        let sets = listener_sets
            .iter()
            .map(|(name, status)| (Kind::ListenerSet, name, ObjectStatus::ListenerSet(status)));
        let routes = routes
            .iter()
            .map(|(key, status)| (key.kind, &key.name, ObjectStatus::Route(status)));
        let policies = policies
            .iter()
            .map(|(key, status)| (key.kind, &key.name, ObjectStatus::Policy(status)));
        classes
            .chain(gateways)
            .chain(sets)
            .chain(routes)
            .chain(policies)
    }
}
