//! Defines the engine's input events. A single type covers everything that can change the world.

use std::time::SystemTime;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::{AnyObject, Definitions, Kind, ObjectKey};

use super::{FetchOutcome, PublishedBefore, StoredStatus, WatchEvent};

/// Input event for the engine.
#[derive(Debug)]
pub(crate) enum Input {
    /// Watch event.
    Watched {
        /// The watched kind.
        kind: Kind,
        /// The event.
        event: WatchEvent<WatchedObject>,
        /// Time at which the event arrived.
        seen: SystemTime,
    },
    /// Releases of the installed Gateway API CRDs.
    Defined(Definitions),
    /// Content of the previous publications, which is read before any referenced object.
    Published(PublishedBefore),
    /// The controller's settings might have changed.
    Configured,
    /// Result of reading a referenced object.
    Fetched {
        /// The object.
        key: ObjectKey,
        /// The result.
        answer: FetchOutcome,
    },
}

impl Input {
    /// Returns the object that might have changed, if any, and the time of the event.
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

/// Decoded object from a watch event.
#[derive(Debug)]
pub(crate) struct WatchedObject {
    /// Namespace and name.
    pub(crate) name: NamespacedName,
    /// The object, or why it cannot be decoded.
    pub(crate) object: Result<AnyObject, String>,
    /// Stored status of the object, if the controller writes statuses for this kind.
    pub(crate) stored: Option<StoredStatus>,
}
