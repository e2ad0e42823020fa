//! Maintains the objects that a Gateway owns: its Service, whose EndpointSlices list the hosts that
//! serve it, the fleet of a managed Gateway, and a second Gateway that forwards to it. All have the
//! labels and annotations in `spec.infrastructure`.
//!
//! By default the Service is headless: `<gateway>-<class>.<namespace>.svc` resolves to the
//! addresses of the hosts. The fleet serves the Gateway.
//!
//! [`Basis`] contains the facts about a Gateway; `service`, `fleet` and `upstream` build its
//! desired objects; `plan` computes the writes; `assigned` reads the addresses assigned to
//! Services. All of these are pure. Only the `provisioner` writes, while this replica is the
//! leader. It never changes foreign objects, i.e. objects whose owner is neither our Gateway nor a
//! GatewayClass with merged Gateways, by UID. If a name is taken, the Gateway lacks the object, and
//! its status reports this.

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
