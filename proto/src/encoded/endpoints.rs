//! Endpoint sets in an encoded snapshot, patched without decoding those that have not changed.

use std::collections::HashMap;

use crate::schema::EndpointSet;
use crate::wire::numbers::{endpoint_set, snapshot};
use crate::wire::{append, append_messages, contents, first};

/// Returns the sets with these in the places of those of their names; sets that are not there are left out. None where the
/// bytes are not as expected.
pub(super) fn patch(encoded: &[u8], sets: &[EndpointSet]) -> Option<Vec<u8>> {
    let sets: HashMap<&[u8], &EndpointSet> =
        sets.iter().map(|set| (set.name.as_bytes(), set)).collect();
    let mut bytes = Vec::with_capacity(encoded.len() + encoded.len() / 64);
    for set in contents(encoded, snapshot::ENDPOINTS)? {
        let (field, name, _) = first(set)?;
        match sets.get(name).filter(|_| field == endpoint_set::NAME) {
            Some(changed) => append_messages(snapshot::ENDPOINTS, [*changed], &mut bytes),
            None => append(snapshot::ENDPOINTS, set, &mut bytes),
        }
    }
    Some(bytes)
}

/// Returns the names of the sets that both have, and that differ. None where the bytes are not as expected.
pub(super) fn changed<'e>(before: &[u8], now: &'e [u8]) -> Option<Vec<&'e str>> {
    let before = by_name(before)?;
    let before: HashMap<&[u8], &[u8]> = before.into_iter().collect();
    let differ = by_name(now)?.into_iter().filter(|(name, set)| {
        let known = before.get(name);
        known.is_some_and(|known| known != set)
    });
    differ
        .map(|(name, _)| std::str::from_utf8(name).ok())
        .collect()
}

/// Returns each set as it is encoded, and its name.
fn by_name(encoded: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let sets = contents(encoded, snapshot::ENDPOINTS)?.into_iter();
    let named = |set| {
        let (field, name, _) = first(set)?;
        (field == endpoint_set::NAME).then_some((name, set))
    };
    sets.map(named).collect()
}
