//! The private keys of accepted generations: sealed on disk, and gone from it when the source has withdrawn or replaced them.
//!
//! Only the accepted generation and the one before it hold keys, and of these only such as were served last. Any other one that
//! is gone back to has the present key of each Secret. Must never keep a key that is revoked for the sake of a rollback.

use std::collections::BTreeSet;

use sesame_gateway_api::certificate_facts::CertificateFacts;
use sesame_proto::at_rest::{self, StoredPair};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{KeyRef, Snapshot};

use crate::apply::state::{StateDir, StateError};
use crate::seal::{SealingError, SealingKeys};

/// Returns the pairs that are `named` as they are to be stored. One that could not be read, and so is not among `pairs`, stays as
/// it is stored now: it may be read again when the host has its sealing key back.
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

/// Returns the pairs that a snapshot names, in its order: its own, or else the present ones of the same names, to which its
/// references are changed. Those that there are no more, or cannot be read, are left out, and the second list says why.
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

/// Returns the certificates of stored pairs, without their keys.
pub(super) fn public(stored: &[u8]) -> anyhow::Result<Vec<KeyPair>> {
    let stored = at_rest::decode(stored)?.into_iter();
    let public = |pair: StoredPair| KeyPair {
        private_key: Vec::new(),
        ..pair.in_clear()
    };
    Ok(stored.map(public).collect())
}

/// Puts these pairs in the place of those of the same names, and changes the references to them.
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

/// Has a reference name this pair.
pub(super) fn refer_to(key: &mut KeyRef, pair: &KeyPair) {
    let digest = pair.digest();
    if key.digest == digest {
        return;
    }
    let leaf = CertificateFacts::of_pem(&pair.certificate_chain);
    let leaf = leaf.into_iter().next();
    key.digest = digest;
    key.not_after = leaf.as_ref().map_or(0, |leaf| leaf.not_after);
    key.serial = leaf.map(|leaf| leaf.serial).unwrap_or_default();
}

/// Returns the pairs of all generations, the newest first.
fn all(state: &StateDir) -> Vec<StoredPair> {
    let numbers = state.numbers().unwrap_or_default();
    let newest_first = numbers.into_iter().rev();
    let pairs = newest_first.filter_map(|number| {
        let keys = state.load_keys(number).ok()?;
        at_rest::decode(&keys).ok()
    });
    pairs.flatten().collect()
}

/// Removes every key from the generations that is not among `live`, and all keys of those that are older than the one before the
/// accepted one.
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

/// Seals what is in clear or was sealed with another key than the present one, and the other way round where nothing is to be sealed.
/// Pairs that cannot be read stay as they are.
pub(super) fn seal_anew(state: &StateDir, sealing: &SealingKeys) -> Result<(), StateError> {
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

/// Changes the keys of the accepted generation and the one before; `change` says whether it did. The others lose theirs.
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
        // A damaged one is told when it is read.
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
