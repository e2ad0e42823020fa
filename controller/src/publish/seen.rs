//! What is seen of published objects: by their watches, and in the answer to a write. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::observed::{Entry, Published};
use crate::watch::Seen;

/// Name and version of an object, and what it is if it is one of ours.
pub(super) type Found = (String, u64, Option<Entry>);

/// As much of a written object as is read: what else is in it was written here.
#[derive(Deserialize)]
pub(super) struct Stored {
    pub(super) metadata: StoredMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredMetadata {
    pub(super) resource_version: String,
}

/// Takes what a watch saw; says whether it was not known.
pub(super) fn take(
    published: &mut Published,
    listed: &mut BTreeSet<&'static str>,
    kind: &'static str,
    seen: Seen<Found>,
) -> bool {
    match seen {
        Seen::All(found) => {
            let entries = found
                .into_iter()
                .filter_map(|(name, _, entry)| Some((name, entry?)))
                .collect();
            published.list(kind, entries);
            listed.insert(kind);
            true
        }
        Seen::One((name, _, Some(entry))) => published.put(&name, entry),
        Seen::One((name, version, None)) | Seen::Gone((name, version, _)) => {
            published.remove(kind, &name, version)
        }
    }
}
