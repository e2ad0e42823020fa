//! Defines the engine's input events.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{AnyObject, Definitions, Kind, ObjectKey};

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
    /// Number of live hosts of each published Gateway.
    LiveHosts(BTreeMap<NamespacedName, u32>),
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
            | Self::LiveHosts(_)
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
