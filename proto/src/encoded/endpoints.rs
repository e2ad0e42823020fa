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
