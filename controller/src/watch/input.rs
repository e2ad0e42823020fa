//! Events of the cluster as the engine takes them: one type for everything that can change the world.

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::{AnyObject, Definitions, Kind, ObjectKey};

use super::{FetchOutcome, PublishedBefore, StoredStatus, WatchEvent};

/// News of the cluster.
#[derive(Debug)]
pub(crate) enum Input {
    /// Event of a watch.
    Watched {
        /// The kind that is watched.
        kind: Kind,
        /// The event.
        event: WatchEvent<WatchedObject>,
    },
    /// The definitions of the Gateway API that are installed.
    Defined(Definitions),
    /// Memory of what was published last, read before anything that is referred to.
    Published(PublishedBefore),
    /// The settings of the controller may have changed.
    Configured,
    /// Outcome of the read of an object that is referred to.
    Fetched {
        /// The object.
        key: ObjectKey,
        /// The answer.
        answer: FetchOutcome,
    },
}

/// Object in a watch event, decoded.
#[derive(Debug)]
pub(crate) struct WatchedObject {
    /// Namespace and name.
    pub(crate) name: NamespacedName,
    /// The object, or the reason why it cannot be decoded.
    pub(crate) object: Result<AnyObject, String>,
    /// Its status, if the controller writes statuses of this kind.
    pub(crate) stored: Option<StoredStatus>,
}
