//! Keeps the private keys of accepted generations sealed on disk.
//!
//! Only the accepted and the previous generation contain keys, and only keys that are still served.
//! A revoked key must never be kept for a rollback.

use std::collections::BTreeSet;

use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_proto::at_rest::{self, StoredPair};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{KeyRef, Snapshot};

use sesame_apply::state::{StateDir, StateError};
use sesame_sources::seal::{SealingError, SealingKeys};

/// Unreadable pairs keep their stored form, because their sealing key may become available again.
pub(super) fn encode(
    pairs: &[KeyPair],
    named: &[KeyRef],
    state: &StateDir,
    sealing: &SealingKeys,
) -> Result<Vec<u8>, SealingError> {
    let sealed = pairs.iter().map(|pair| sealing.seal_pair(pair));
    let mut stored = sealed.collect::<Result<Vec<StoredPair>, _>>()?;
    let is_missing = |key: &&KeyRef| !pairs.iter().any(|pair| pair.name == key.name);
    let missing: Vec<&KeyRef> = named.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        let before = all(state);
        let is_it =
            |pair: &&StoredPair, key: &KeyRef| pair.name == key.name && pair.digest() == key.digest;
        let unread = |key: &KeyRef| before.iter().find(|pair| is_it(pair, key)).cloned();
        stored.extend(missing.into_iter().filter_map(unread));
    }
    Ok(at_rest::encode(stored))
}

/// Replaces missing pairs with current pairs of the same name. The second list contains the reasons
/// for skipped pairs.
pub(super) fn find(
    snapshot: &mut Snapshot,
    own: &[u8],
    state: &StateDir,
    sealing: &SealingKeys,
) -> anyhow::Result<(Vec<KeyPair>, Vec<String>)> {
    let own = at_rest::decode(own)?;
    let (mut pairs, mut problems) = (Vec::new(), Vec::new());
    let mut others = None;
    for key in &mut snapshot.keys {
        let is_own = |pair: &&StoredPair| pair.name == key.name && pair.digest() == key.digest;
        let mut found = own.iter().find(is_own).cloned();
        if found.is_none() {
            let others: &Vec<StoredPair> = others.get_or_insert_with(|| all(state));
            found = others.iter().find(|pair| pair.name == key.name).cloned();
        }
        let Some(found) = found else {
            problems.push(format!("the key of {} was withdrawn", key.name));
            continue;
        };
        match sealing.open_pair(&found) {
            Ok(pair) => {
                refer_to(key, &pair);
                pairs.push(pair);
            }
            Err(error) => problems.push(format!("the key of {} {error}", key.name)),
        }
    }
    Ok((pairs, problems))
}

/// Omits private keys.
pub(super) fn public(stored: &[u8]) -> anyhow::Result<Vec<KeyPair>> {
    let stored = at_rest::decode(stored)?.into_iter();
    let public = |pair: StoredPair| KeyPair {
        private_key: Vec::new(),
        ..pair.in_clear()
    };
    Ok(stored.map(public).collect())
}

/// Also updates the references in `snapshot`.
pub(super) fn replace(snapshot: &mut Snapshot, pairs: &mut Vec<KeyPair>, present: &[KeyPair]) {
    for key in &mut snapshot.keys {
        let Some(new) = present.iter().find(|pair| pair.name == key.name) else {
            continue;
        };
        refer_to(key, new);
        match pairs.iter_mut().find(|pair| pair.name == key.name) {
            Some(pair) => pair.clone_from(new),
            None => pairs.push(new.clone()),
        }
    }
}

pub(super) fn refer_to(key: &mut KeyRef, pair: &KeyPair) {
    let digest = pair.digest();
    if key.digest == digest {
        return;
    }
    let leaf = CertificateFacts::from_pem(&pair.certificate_chain);
    let leaf = leaf.into_iter().next();
    key.digest = digest;
    key.not_after = leaf.as_ref().map_or(0, |leaf| leaf.not_after);
    key.serial = leaf.map(|leaf| leaf.serial).unwrap_or_default();
}

/// Returns all stored pairs, newest generation first.
fn all(state: &StateDir) -> Vec<StoredPair> {
    let numbers = state.numbers().unwrap_or_default();
    let newest_first = numbers.into_iter().rev();
    let pairs = newest_first.filter_map(|number| {
        let keys = state.load_keys(number).ok()?;
        at_rest::decode(&keys).ok()
    });
    pairs.flatten().collect()
}

pub(super) fn revoke_others(state: &StateDir, live: &[KeyRef]) -> Result<(), StateError> {
    let live: BTreeSet<(&str, &str)> = live
        .iter()
        .map(|key| (key.name.as_str(), key.digest.as_str()))
        .collect();
    rewrite(state, |pairs| {
        let before = pairs.len();
        pairs.retain(|pair| live.contains(&(pair.name.as_str(), pair.digest().as_str())));
        pairs.len() != before
    })
}

/// If sealing is off, stores the keys in plaintext. Skips unreadable pairs.
pub(super) fn reseal(state: &StateDir, sealing: &SealingKeys) -> Result<(), StateError> {
    rewrite(state, |pairs| {
        let mut changed = false;
        for stored in pairs.iter_mut().filter(|pair| !sealing.is_current(pair)) {
            let opened = sealing.open_pair(stored);
            if let Ok(sealed) = opened.and_then(|pair| sealing.seal_pair(&pair)) {
                *stored = sealed;
                changed = true;
            }
        }
        changed
    })
}

/// `change` returns true if it changed any key. Deletes the keys of all generations except the
/// accepted and the previous one.
fn rewrite(
    state: &StateDir,
    change: impl Fn(&mut Vec<StoredPair>) -> bool,
) -> Result<(), StateError> {
    let numbers = state.numbers()?;
    let accepted = state.accepted().or_else(|| numbers.last().copied());
    let before = numbers
        .iter()
        .rev()
        .find(|number| Some(**number) != accepted);
    for number in &numbers {
        let stays = Some(*number) == accepted || Some(number) == before;
        state.settle_keys(*number)?;
        // Skip damaged keys: the error is reported when the generation is read.
        let pairs = state.load_keys(*number).ok();
        let Some(mut pairs) = pairs.and_then(|keys| at_rest::decode(&keys).ok()) else {
            continue;
        };
        let changed = if stays {
            change(&mut pairs)
        } else {
            let had = !pairs.is_empty();
            pairs.clear();
            had
        };
        if changed {
            state.replace_keys(*number, &at_rest::encode(pairs))?;
        }
    }
    Ok(())
}
