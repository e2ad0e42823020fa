//! Listener hostnames for which clients reject all of the listener's certificates. The listener's
//! condition, Events and metrics are all derived from these values.

use std::collections::BTreeMap;
use std::fmt;

use super::CheckedListener;
use crate::world::ObjectKey;

/// A listener hostname that no name in the listener's certificates covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncoveredHostname {
    /// Name of the listener.
    pub listener: String,
    /// The hostname as the API spells it.
    pub hostname: String,
}

/// The uncovered hostnames of each Gateway and ListenerSet, in listener order. Only objects with
/// uncovered hostnames are present.
pub type UncoveredHostnames = BTreeMap<ObjectKey, Vec<UncoveredHostname>>;

impl fmt::Display for UncoveredHostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listener: _,
            hostname,
        } = self;
        write!(
            f,
            "no certificate of the listener is for hostname {hostname:?}; clients will reject it"
        )
    }
}

/// Returns the uncovered hostnames of listeners, keyed by the object that contains them.
pub(crate) fn collect<'l, 'w: 'l>(
    by_owner: impl Iterator<Item = (ObjectKey, &'l [CheckedListener<'w>])>,
) -> UncoveredHostnames {
    by_owner
        .map(|(owner, listeners)| {
            let found = listeners.iter().filter_map(|it| it.uncovered.clone());
            (owner, found.collect::<Vec<_>>())
        })
        .filter(|(_, found)| !found.is_empty())
        .collect()
}
