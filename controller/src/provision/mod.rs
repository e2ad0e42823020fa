//! Maintains the objects that a Gateway owns: its Service, its managed fleet, and a second Gateway.
//! Only the `provisioner` writes, and only on the leader. It never changes an object unless its
//! owner's UID belongs to one of our Gateways or GatewayClasses.

mod abandoned;
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
#[cfg(test)]
mod implied_tests;
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
