//! Updates the published objects from watch events and write responses.

use std::collections::BTreeSet;

use super::observed::{PublishedObject, PublishedObjects};
use crate::watch::WatchEvent;

/// The entry is `None` if the object is not ours.
pub(super) type FoundObject = (String, u64, Option<PublishedObject>);

/// Returns true if the published objects changed.
pub(super) fn apply(
    published: &mut PublishedObjects,
    listed: &mut BTreeSet<&'static str>,
    kind: &'static str,
    event: WatchEvent<FoundObject>,
) -> bool {
    match event {
        WatchEvent::Listed(found) => {
            let entries = found
                .into_iter()
                .filter_map(|(name, _, entry)| Some((name, entry?)))
                .collect();
            published.list(kind, entries);
            listed.insert(kind);
            true
        }
        WatchEvent::Applied((name, _, Some(entry))) => published.put(&name, entry),
        WatchEvent::Applied((name, version, None)) | WatchEvent::Deleted((name, version, _)) => {
            published.remove(kind, &name, version)
        }
    }
}
