//! Events for the engine: one type for everything that can change the world.

use std::time::SystemTime;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::{AnyObject, Definitions, Kind, ObjectKey};

use super::{FetchOutcome, PublishedBefore, StoredStatus, WatchEvent};

/// An event of the cluster.
#[derive(Debug)]
pub(crate) enum Input {
    /// Event of a watch.
    Watched {
        /// The kind that is watched.
        kind: Kind,
        /// The event.
        event: WatchEvent<WatchedObject>,
        /// Time at which it arrived.
        seen: SystemTime,
    },
    /// The installed definitions of the Gateway API.
    Defined(Definitions),
    /// Digests of the last publication, read before referenced objects.
    Published(PublishedBefore),
    /// The settings of the controller may have changed.
    Configured,
    /// Result of reading a referenced object.
    Fetched {
        /// The object.
        key: ObjectKey,
        /// The answer.
        answer: FetchOutcome,
    },
}

impl Input {
    /// Returns the object that may have changed, if any, and the time of the event.
    pub(crate) fn object(&self) -> Option<(ObjectKey, SystemTime)> {
        match self {
            Self::Watched {
                kind,
                event: WatchEvent::Applied(object) | WatchEvent::Deleted(object),
                seen,
            } => Some((kind.named(object.name.clone()), *seen)),
            Self::Fetched { key, answer: _ } => Some((key.clone(), SystemTime::now())),
            Self::Watched {
                event: WatchEvent::Listed(_),
                ..
            }
            | Self::Defined(_)
            | Self::Published(_)
            | Self::Configured => None,
        }
    }
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
