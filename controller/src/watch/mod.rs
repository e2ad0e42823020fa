//! Watches the cluster and delivers its objects as a stream of values. Known objects are kept until
//! a new list replaces them, and an optional kind without a CRD is empty. Secrets and ConfigMaps
//! can be large, so only their metadata is watched and referenced objects are read individually
//! ([`references`], [`fetch`]).

pub(crate) mod definitions;
pub(crate) mod fetch;
mod follow;
mod holds;
mod input;
pub(crate) mod kinds;
mod merged;
mod other_writer;
mod own_status;
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
pub(crate) use self::other_writer::OtherWriter;
pub(crate) use self::own_status::{OwnStatus, field_manager};
pub(crate) use self::published_before::PublishedBefore;
pub(crate) use self::received::{Json, Keep, PAGE, Received};
pub(crate) use self::references::references;
pub(crate) use self::resource::{api_resource, watched_apis};
pub(crate) use self::stored_status::{StoredStatus, is_layered};
