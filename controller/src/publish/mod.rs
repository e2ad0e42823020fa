//! Publishing: the Gateways as resolved, as ConfigMaps and Secrets of Sesame's own namespace.
//!
//! [`Bundle`] is what a Gateway should be there, [`Published`] what is there, and `plan` the writes between the two:
//! all pure. Only the `publisher` writes. It keeps no state of its own: what is there is read from the cluster, so that
//! a restart, another leader, or somebody's `kubectl delete` needs nothing special.
//!
//! Order: keys, shards and endpoints (those of the revision before still among them) → manifest → what is left over
//! goes. Shards of the revision before stay until the next: an agent may be reading them. Nothing is withdrawn unless
//! the Gateway is known to be gone or no longer ours.

mod bundle;
mod desired;
mod objects;
mod observed;
mod plan;
#[cfg(test)]
mod plan_tests;
mod publisher;
mod retries;
mod seen;
mod signing;
mod write;

pub(crate) use self::bundle::Bundle;
pub(crate) use self::desired::{Desired, DesiredPublications, revisions};
pub(crate) use self::publisher::Publisher;
pub(crate) use self::signing::Signing;
