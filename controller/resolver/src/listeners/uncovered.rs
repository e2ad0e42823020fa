//! Listener hostnames without a certificate. Clients reject connections to these hostnames.

use std::collections::BTreeMap;
use std::fmt;

use super::CheckedListener;
use sesame_kinds::world::ObjectKey;

/// A hostname that the listener's certificates do not cover.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncoveredHostname {
    /// Name of the listener.
    pub listener: String,
    /// The hostname as in the spec.
    pub hostname: String,
}

/// Uncovered hostnames, keyed by the object that defines the listeners. Objects without uncovered
/// hostnames are absent.
pub type UncoveredHostnames = BTreeMap<ObjectKey, Vec<UncoveredHostname>>;

impl fmt::Display for UncoveredHostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listener: _,
            hostname,
        } = self;
        write!(
            f,
            "none of the listener's certificates covers hostname {hostname:?}; clients will reject the certificate"
        )
    }
}

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
