//! Events of the cluster as the engine takes them: one type for everything that can change the world.

use std::time::SystemTime;

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
        /// Time at which it arrived.
        seen: SystemTime,
    },
    /// The definitions of the Gateway API that are installed.
    Defined(Definitions),
    /// Digests of the last publication, read before referenced objects.
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

impl Input {
    /// Returns the object that may have changed, if it is one, and the time at which that was seen.
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
