//! The last good key pair of each Secret: what goes on being served while the Secret is broken.
//!
//! Resolution has no memory, so what it needs to know of before is a part of its input. Whoever resolves hands what a
//! resolution found good to the next one, and after a restart what was published or accepted last. It holds private
//! keys, and prints none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::keys::KeyPair;

use super::{Kind, ObjectKey};
use crate::api::NamespacedName;

/// Key pairs by the Secret that they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastGoodKeys {
    pairs: Arc<BTreeMap<NamespacedName, Arc<KeyPair>>>,
    /// Secrets of which nobody could say whether they are there. What is good of them stays good; one that is known to be
    /// gone has nothing that could be.
    unread: BTreeSet<NamespacedName>,
}

impl LastGoodKeys {
    /// The pairs that were published or accepted. Of two of the same Secret the first counts.
    pub fn of_pairs(pairs: impl IntoIterator<Item = KeyPair>) -> Self {
        let mut found = BTreeMap::new();
        for pair in pairs {
            if let Some(secret) = ObjectKey::parse_as(Kind::Secret, &pair.name) {
                found.entry(secret).or_insert_with(|| Arc::new(pair));
            }
        }
        found.into_iter().collect()
    }

    /// The pair of a Secret.
    pub fn get(&self, secret: &NamespacedName) -> Option<&Arc<KeyPair>> {
        self.pairs.get(secret)
    }

    /// Whether nobody could say if the Secret is there.
    pub fn is_unread(&self, secret: &NamespacedName) -> bool {
        self.unread.contains(secret)
    }

    /// Takes note of whether it is known if the Secret is there.
    pub fn set_unread(&mut self, secret: &NamespacedName, unread: bool) {
        if unread {
            self.unread.insert(secret.clone());
        } else {
            self.unread.remove(secret);
        }
    }

    /// Takes what a resolution found good in place of what was.
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
