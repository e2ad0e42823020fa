//! Keeps the objects that a Gateway owns: its Service, whose EndpointSlices hold the hosts that serve it, the fleet of a managed
//! Gateway, and a second Gateway that leads to it. All carry the labels and annotations of `spec.infrastructure`.
//!
//! By default the Service is headless: `<gateway>-<class>.<namespace>.svc` resolves to the hosts'
//! own addresses. The fleet serves the Gateway.
//!
//! [`Basis`] holds the facts about a Gateway; `service`, `fleet` and `upstream` build its desired
//! objects; `plan` computes the writes; `assigned` reads the addresses that Services got. All of
//! these are pure. Only the `provisioner` writes, while this replica leads. It never touches
//! foreign objects, which do not name the UID of our Gateway, or of a GatewayClass with merged
//! Gateways, as their owner. If a name is taken, the Gateway lacks the object, and its status says
//! so.

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
