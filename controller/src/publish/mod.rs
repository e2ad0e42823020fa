//! Publishes resolved Gateways as ConfigMaps and Secrets in Sesame's own namespace. Keys, shards
//! and endpoints are written before the manifest, and unused objects are deleted last. Shards of
//! the previous revision are kept, because agents may be reading them. Nothing is withdrawn unless
//! the Gateway is deleted or no longer ours.

mod desired;
mod objects;
mod observed;
mod plan;
#[cfg(test)]
mod plan_tests;
mod publication;
mod publisher;
mod retries;
mod rollouts;
mod seen;
mod signing;
mod summary;
mod write;

pub(crate) use self::desired::{DesiredPublication, DesiredPublications, revisions};
pub(crate) use self::publication::Publication;
pub(crate) use self::publisher::SnapshotPublisher;
pub(crate) use self::rollouts::{ReportedHost, RolloutHosts, RolloutNotes};
pub(crate) use self::signing::Signing;
