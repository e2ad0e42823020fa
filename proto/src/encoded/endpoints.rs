//! Compares and patches endpoint sets without decoding unchanged sets.

use std::collections::{BTreeSet, HashMap};

use prost::Message as _;

use super::differences::{NamedMessage, by_name};
use crate::schema::EndpointSet;
use crate::wire::numbers::{self, endpoint_set, snapshot};
use crate::wire::{append, append_message, contents, first};

/// Field numbers of the list and of a set's name.
pub(super) const PLACE: (u32, u32) = (snapshot::ENDPOINTS, endpoint_set::NAME);

/// Ignores names that do not exist.
pub(super) fn patch(encoded: &[u8], sets: &[EndpointSet]) -> Option<Vec<u8>> {
    let sets: HashMap<&[u8], &EndpointSet> =
        sets.iter().map(|set| (set.name.as_bytes(), set)).collect();
    let mut bytes = Vec::with_capacity(encoded.len() + encoded.len() / 64);
    for set in contents(encoded, snapshot::ENDPOINTS)? {
        let (field, name, _) = first(set)?;
        match sets.get(name).filter(|_| field == endpoint_set::NAME) {
            Some(changed) => append_message(snapshot::ENDPOINTS, *changed, &mut bytes),
            None => append(snapshot::ENDPOINTS, set, &mut bytes),
        }
    }
    Some(bytes)
}

/// Returns `None` if a set was added, removed or moved.
pub(super) fn replaced(before: &[u8], now: &[u8]) -> Option<Vec<EndpointSet>> {
    let differ = differ_in_place(&by_name(before, PLACE)?, &by_name(now, PLACE)?)?.into_iter();
    differ
        .map(|(_, set)| EndpointSet::decode(set).ok())
        .collect()
}

/// Returns `None` if a set was added, removed or moved.
fn differ_in_place<'e>(
    before: &[NamedMessage<'_>],
    now: &[NamedMessage<'e>],
) -> Option<Vec<NamedMessage<'e>>> {
    let pairs = || before.iter().zip(now);
    let same_names = before.len() == now.len() && pairs().all(|(old, now)| old.0 == now.0);
    let differ = pairs().filter(|(old, now)| old.1 != now.1);
    same_names.then(|| differ.map(|(_, now)| *now).collect())
}

pub(super) fn set_of(backend: &[u8]) -> &[u8] {
    let mut rest = backend;
    // Fields are encoded in numeric order, and all fields before `endpoints` are length-delimited.
    while let Some((field, content, behind)) = first(rest) {
        if field == numbers::backend::ENDPOINTS {
            return content;
        }
        rest = behind;
    }
    &[]
}

pub(super) fn changed<'e>(before: &[u8], now: &'e [u8]) -> Option<Vec<&'e str>> {
    let (before, now) = (by_name(before, PLACE)?, by_name(now, PLACE)?);
    let differ = differ_in_place(&before, &now).unwrap_or_else(|| {
        let before: HashMap<&[u8], &[u8]> = before.iter().copied().collect();
        let differs = |(name, set): &NamedMessage<'_>| {
            let known = before.get(name);
            known.is_some_and(|known| known != set)
        };
        now.into_iter().filter(differs).collect()
    });
    let names = differ
        .into_iter()
        .map(|(name, _)| std::str::from_utf8(name));
    names.collect::<Result<_, _>>().ok()
}

pub(super) fn named(encoded: &[u8], names: &BTreeSet<&str>) -> Option<Vec<EndpointSet>> {
    let all = by_name(encoded, PLACE)?.into_iter();
    let wanted = all.filter(|(name, _)| {
        let name = std::str::from_utf8(name);
        name.is_ok_and(|name| names.contains(name))
    });
    wanted
        .map(|(_, set)| EndpointSet::decode(set).ok())
        .collect()
}
