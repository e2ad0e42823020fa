//! Gives each Gateway a name in the cluster: a headless Service in the Gateway's namespace, whose EndpointSlices hold the
//! addresses of the Gateway's status. Both carry the labels and annotations of `spec.infrastructure`.
//!
//! It routes nothing: whoever looks up `<gateway>-<class>.<namespace>.svc` gets the hosts' own addresses. [`Basis`] holds what is
//! known of a Gateway, `objects` makes the objects that it should have, and `plan` the writes from those that are there: all pure.
//! Only the `provisioner` writes, while this replica leads. It never touches an object that is not ours: one that does not
//! name the UID of a Gateway of ours as its owner. A Gateway whose name is taken has no Service, and its status says so.

mod basis;
mod objects;
mod plan;
#[cfg(test)]
mod plan_tests;
mod provisioner;

use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
