//! Publishes resolved Gateways as ConfigMaps and Secrets of Sesame's own namespace.
//!
//! [`Publication`] holds the objects that a Gateway should have there, `observed` those that are there, and `plan` the writes between
//! the two: all pure. Only the `publisher` writes. It keeps no state of its own: what is there is read from the cluster, so that
//! a restart, another leader, or somebody's `kubectl delete` needs nothing special.
//!
//! Order: keys, shards and endpoints (with those of the revision before) → manifest → leftovers are
//! deleted. Shards of the revision before stay until the next: an agent may be reading them. Nothing is withdrawn unless
//! the Gateway is known to be gone or no longer ours.

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
