//! A name in the cluster for each Gateway: a headless Service in the Gateway's namespace, whose EndpointSlices hold the
//! addresses of the Gateway's status. Both carry the labels and annotations of `spec.infrastructure`.
//!
//! It routes nothing: who asks for `<gateway>-<class>.<namespace>.svc` learns the hosts' own addresses. [`Basis`] is what is
//! known of a Gateway, `objects` what there should be of it, and `plan` the writes between that and what is there: all pure.
//! Only the `provisioner` writes, while this replica leads. It never touches an object that is not ours: one that does not
//! name the UID of a Gateway of ours as its owner. A Gateway whose name is taken has none, and is told.

mod basis;
mod objects;
mod plan;
#[cfg(test)]
mod plan_tests;
mod provisioner;

use self::basis::Basis;
pub(crate) use self::provisioner::Provisioner;
