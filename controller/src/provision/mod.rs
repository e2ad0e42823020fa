//! Keeps the objects that a Gateway owns: its Service, and the fleet of a managed Gateway. All carry the labels and annotations of
//! `spec.infrastructure`.
//!
//! The Service gives the Gateway a name in the cluster: whoever looks up `<gateway>-<class>.<namespace>.svc` gets the hosts' own
//! addresses. The fleet serves it. [`Basis`] holds what is known of a Gateway, `service` and `fleet` make the objects that it
//! should have, and `plan` the writes from those that are there: all pure. Only the `provisioner` writes, while this replica
//! leads. It never touches an object that is not ours: one that does not name the UID of a Gateway of ours as its owner. A Gateway
//! whose name is taken lacks the object, and its status says so.

mod basis;
mod cache;
mod fleet;
#[cfg(test)]
mod fleet_plan_tests;
mod kinds;
mod owned;
mod plan;
#[cfg(test)]
mod plan_tests;
mod provisioner;
mod service;

use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
