//! Maintains the objects that a Gateway owns. These are a Service whose EndpointSlices list the
//! serving hosts, the fleet if it is managed, and an optional second Gateway that forwards to the
//! first. All have the labels and annotations in `spec.infrastructure`.
//!
//! By default the Service is headless: `<gateway>-<class>.<namespace>.svc` resolves to the hosts'
//! addresses. A fleet contains the Pods that serve the Gateway.
//!
//! [`Basis`] contains the facts about a Gateway; `service`, `fleet` and `upstream` build its
//! desired objects; `plan` computes the writes; `assigned` reads the addresses assigned to
//! Services. All of these are pure. Only the `provisioner` writes, and only while this replica is
//! the leader. The `provisioner` must never change foreign objects, whose owner (by UID) is neither
//! one of our Gateways nor a GatewayClass with merged Gateways. If a name is taken, the Gateway
//! lacks the object, and the Gateway's status reports this.

mod adoption;
mod assigned;
mod basis;
mod cache;
mod endpoints;
mod fleet;
#[cfg(test)]
mod fleet_plan_tests;
#[cfg(test)]
mod fleet_workload_tests;
mod inventory;
mod kept;
mod kinds;
#[cfg(test)]
mod merged_plan_tests;
mod owned;
mod plan;
#[cfg(test)]
mod plan_tests;
mod provisioner;
mod service;
mod service_fields;
mod upstream;

pub(crate) use self::adoption::{AdoptionAction, AdoptionPreview, ObjectAction};
use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
