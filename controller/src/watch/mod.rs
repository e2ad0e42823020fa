//! Watches the cluster, and hands its objects on as a stream of values.
//!
//! Every kind has a watch of its own, or one for each namespace, if they are named ([`merged`]). A lost watch changes nothing: it is started again, with growing pauses,
//! and the objects that it then lists replace those that were known. An object that cannot be decoded is passed on as such and stops
//! nothing. A kind whose definition is not installed counts as empty, and is looked for again; without the kinds that everything else
//! hangs on, nothing is resolved at all ([`kinds`]).
//!
//! There are many Secrets and ConfigMaps, large and mostly none of our business. Only their metadata is
//! watched, and nothing of it is kept: an event about an object that a Gateway or a policy refers to has the object
//! itself read ([`references`], [`fetch`]). Sesame's own namespace is left out; the objects published there have
//! watches of their own, which keep digests.

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

pub(crate) use self::fetch::{FetchOutcome, References};
use self::follow::follow;
pub(crate) use self::follow::{ObjectWatch, Unwatched, WatchEvent, watch_config};
pub(crate) use self::holds::holds;
pub(crate) use self::input::{Input, WatchedObject};
pub(crate) use self::published_before::PublishedBefore;
pub(crate) use self::received::{Json, Keep, PAGE, Received};
pub(crate) use self::references::references;
pub(crate) use self::resource::{api_resource, watched_apis};
pub(crate) use self::stored_status::StoredStatus;
