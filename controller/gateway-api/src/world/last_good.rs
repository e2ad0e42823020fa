//! The last good key pair of each Secret, which remains in use while the Secret is invalid.
//!
//! Resolution is stateless, so the history that it needs is part of its input. The caller passes
//! the pairs that one resolution found valid to the next. After a restart, it passes the pairs that
//! were last published or accepted. Private keys are never printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::keys::KeyPair;

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

/// The last good key pairs, keyed by Secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastGoodKeys {
    pairs: Arc<BTreeMap<NamespacedName, Arc<KeyPair>>>,
    /// Secrets that could not be read. Whether they exist is unknown, so unlike for deleted
    /// Secrets, their last good pairs are kept.
    unread: BTreeSet<NamespacedName>,
}

impl LastGoodKeys {
    /// Collects pairs that were published or accepted. Only the first pair of each Secret is kept.
    pub fn of_pairs(pairs: impl IntoIterator<Item = KeyPair>) -> Self {
        let mut found = BTreeMap::new();
        for pair in pairs {
            if let Some(secret) = ObjectKey::parse_as(Kind::Secret, &pair.name) {
                found.entry(secret).or_insert_with(|| Arc::new(pair));
            }
        }
        found.into_iter().collect()
    }

    /// Returns the last good pair of a Secret.
    pub fn get(&self, secret: &NamespacedName) -> Option<&Arc<KeyPair>> {
        self.pairs.get(secret)
    }

    /// Returns true if the Secret could not be read. Whether it exists is then unknown.
    pub fn is_unread(&self, secret: &NamespacedName) -> bool {
        self.unread.contains(secret)
    }

    /// Records whether reading the Secret failed.
    pub fn set_unread(&mut self, secret: &NamespacedName, unread: bool) {
        if unread {
            self.unread.insert(secret.clone());
        } else {
            self.unread.remove(secret);
        }
    }

    /// Replaces the pairs with those that a resolution found valid.
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
