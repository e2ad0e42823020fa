//! Publishes resolved Gateways as ConfigMaps and Secrets in Sesame's own namespace.
//!
//! [`Publication`] contains a Gateway's desired objects, `observed` contains the existing objects,
//! and `plan` computes the writes. All of these are pure. Only the `publisher` writes. It keeps no
//! state outside the cluster, so a restart, a new leader or a `kubectl delete` needs no special
//! handling.
//!
//! Keys, shards and endpoints are written first, then the manifest. Unused objects are deleted
//! last. Until the manifest is written, endpoint shards also contain the previous endpoints. Shards
//! of the previous revision are kept until the next revision, because an agent may be reading them.
//! Nothing is withdrawn unless the Gateway is known to be deleted or no longer ours.

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
