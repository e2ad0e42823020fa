//! Keeps the objects that a Gateway owns: its Service, whose EndpointSlices hold the hosts that serve it, the fleet of a managed
//! Gateway, and a second Gateway that leads to it. All carry the labels and annotations of `spec.infrastructure`.
//!
//! By default the Service is headless and routes nothing: whoever looks up `<gateway>-<class>.<namespace>.svc` gets the hosts' own
//! addresses. The fleet serves the Gateway. [`Basis`] holds what is known of a Gateway, `service`, `fleet` and `upstream` make the objects
//! that it should have, `plan` the writes from those that are there, and `assigned` reads the addresses that Services got: all
//! pure. Only the `provisioner` writes, while this replica leads. It never touches an object that is not ours: one that does not
//! name the UID of a Gateway of ours as its owner, or that of a GatewayClass whose Gateways are served together. A Gateway whose name is taken lacks the object, and its status says so.

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

pub(crate) use self::adoption::{AdoptionPreview, Fate, ObjectFate};
use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
