//! Publishes resolved Gateways as ConfigMaps and Secrets of Sesame's own namespace.
//!
//! [`Publication`] holds the desired objects of a Gateway, `observed` the existing ones, and `plan`
//! the writes between them: all pure. Only the `publisher` writes. Its state is the cluster itself,
//! so that a restart, another leader, or a `kubectl delete` needs no special case.
//!
//! Order: keys, shards and endpoints (with the previous revision's) → manifest → leftovers are
//! deleted. Shards of the previous revision stay until the next one, because an agent may be
//! reading them. Nothing is withdrawn unless the Gateway is known to be deleted or no longer ours.

mod desired;
mod objects;
mod observed;
mod plan;
#[cfg(test)]
mod plan_tests;
mod publication;
mod publisher;
mod retries;
mod seen;
mod signing;
mod summary;
mod write;

pub(crate) use self::desired::{DesiredPublication, DesiredPublications, revisions};
pub(crate) use self::publication::Publication;
pub(crate) use self::publisher::SnapshotPublisher;
pub(crate) use self::signing::Signing;
