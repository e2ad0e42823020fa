//! Published objects as watches and answers to writes show them. Pure.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::observed::{Entry, Published};
use crate::watch::WatchEvent;

/// Name and version of an object, and its entry if it is one of ours.
pub(super) type Found = (String, u64, Option<Entry>);

/// The part of a written object that is read: everything else in it was written here.
#[derive(Deserialize)]
pub(super) struct WrittenVersion {
    pub(super) metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenMetadata {
    pub(super) resource_version: String,
}

/// Takes an event of a watch; returns true if it is news.
pub(super) fn take(
    published: &mut Published,
    listed: &mut BTreeSet<&'static str>,
    kind: &'static str,
    event: WatchEvent<Found>,
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
