//! Keeps a Service in the namespace of each Gateway, whose EndpointSlices hold the hosts that serve it. Both carry the labels
//! and annotations of `spec.infrastructure`.
//!
//! By default it is headless and routes nothing: whoever looks up `<gateway>-<class>.<namespace>.svc` gets the hosts' own
//! addresses. [`Basis`] holds what is known of a Gateway, `objects` makes the objects that it should have, `plan` the writes
//! from those that are there, and `assigned` reads the addresses that Services got: all pure. Only the `provisioner` writes,
//! while this replica leads. It never touches an object that is not ours: one that does not name the UID of a Gateway of ours as
//! its owner. A Gateway whose name is taken has no Service, and its status says so.

mod assigned;
mod basis;
mod endpoints;
mod kept;
mod objects;
mod plan;
#[cfg(test)]
mod plan_tests;
mod provisioner;
mod service_fields;

use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
