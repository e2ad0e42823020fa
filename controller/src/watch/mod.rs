//! Watches the cluster and delivers its objects as a stream of values.
//!
//! Every kind has its own watch, or one per namespace if namespaces are configured ([`merged`]). A
//! lost watch is restarted with increasing pauses. Known objects are kept until the new list
//! replaces them. An undecodable object is delivered with the error. An optional kind without a CRD
//! is treated as empty and checked again later. Nothing is resolved until all required kinds are
//! available ([`kinds`]).
//!
//! Clusters contain many large, irrelevant Secrets and ConfigMaps. Therefore, only their metadata
//! is watched, and even that is not kept. An event about a referenced object triggers a read of the
//! object itself ([`references`], [`fetch`]). Sesame's own namespace is excluded; its publications
//! have separate watches, which keep digests.

pub(crate) mod definitions;
pub(crate) mod fetch;
mod follow;
mod holds;
mod input;
pub(crate) mod kinds;
mod merged;
pub(crate) mod pods;
mod published_before;
mod received;
mod references;
mod resource;
mod stored_status;

#[cfg(test)]
pub(crate) use self::fetch::newly_requested;
pub(crate) use self::fetch::{FetchOutcome, References, Touched};
use self::follow::follow;
pub(crate) use self::follow::{ObjectWatch, Unwatched, WatchEvent, watch_config};
pub(crate) use self::holds::holds;
pub(crate) use self::input::{Input, WatchedObject};
pub(crate) use self::published_before::PublishedBefore;
pub(crate) use self::received::{Json, Keep, PAGE, Received};
pub(crate) use self::references::references;
pub(crate) use self::resource::{api_resource, watched_apis};
pub(crate) use self::stored_status::StoredStatus;
