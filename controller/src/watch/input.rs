//! Defines the engine's input events.

use std::time::SystemTime;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::{AnyObject, Definitions, Kind, ObjectKey};

use super::{FetchOutcome, PublishedBefore, StoredStatus, WatchEvent};

#[derive(Debug)]
pub(crate) enum Input {
    Watched {
        kind: Kind,
        event: WatchEvent<WatchedObject>,
        /// Time at which the event arrived.
        seen: SystemTime,
    },
    Defined(Definitions),
    /// Publications that were read before any referenced object.
    Published(PublishedBefore),
    /// The settings might have changed.
    Configured,
    Fetched {
        key: ObjectKey,
        answer: FetchOutcome,
    },
}

impl Input {
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

#[derive(Debug)]
pub(crate) struct WatchedObject {
    pub(crate) name: NamespacedName,
    /// The error explains why the object cannot be decoded.
    pub(crate) object: Result<AnyObject, String>,
    /// Only for kinds whose status the controller writes.
    pub(crate) stored: Option<StoredStatus>,
}
