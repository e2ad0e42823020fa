//! The last valid key pair of each Secret, used while the Secret is invalid.
//!
//! Resolution keeps no state, so the caller passes these pairs to the next resolution. After a
//! restart, the caller passes the published or accepted pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::keys::KeyPair;

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

/// The last valid key pairs, by Secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastGoodKeys {
    pairs: Arc<BTreeMap<NamespacedName, Arc<KeyPair>>>,
    /// Secrets that could not be read but may still exist. Unlike the pairs of deleted Secrets,
    /// their pairs are kept.
    unread: BTreeSet<NamespacedName>,
}

impl LastGoodKeys {
    /// If a Secret has several pairs, keeps the first one.
    pub fn of_pairs(pairs: impl IntoIterator<Item = KeyPair>) -> Self {
        let mut found = BTreeMap::new();
        for pair in pairs {
            if let Some(secret) = ObjectKey::parse_as(Kind::Secret, &pair.name) {
                found.entry(secret).or_insert_with(|| Arc::new(pair));
            }
        }
        found.into_iter().collect()
    }

    /// Returns the last valid key pair.
    pub fn get(&self, secret: &NamespacedName) -> Option<&Arc<KeyPair>> {
        self.pairs.get(secret)
    }

    /// Returns true if the Secret could not be read but may still exist.
    pub fn is_unread(&self, secret: &NamespacedName) -> bool {
        self.unread.contains(secret)
    }

    /// Records whether the last read failed.
    pub fn set_unread(&mut self, secret: &NamespacedName, unread: bool) {
        if unread {
            self.unread.insert(secret.clone());
        } else {
            self.unread.remove(secret);
        }
    }

    /// Replaces the key pairs, but not the unread Secrets.
    pub fn replace(&mut self, found: Self) {
        self.pairs = found.pairs;
    }
}

impl FromIterator<(NamespacedName, Arc<KeyPair>)> for LastGoodKeys {
    fn from_iter<I: IntoIterator<Item = (NamespacedName, Arc<KeyPair>)>>(pairs: I) -> Self {
        Self {
            pairs: Arc::new(pairs.into_iter().collect()),
            unread: BTreeSet::new(),
        }
    }
}
