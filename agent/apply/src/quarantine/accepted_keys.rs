//! Keeps the keys that Envoy accepted last, to restore them if it rejects newer versions.
//!
//! A key is restored only while the target references it. Deleting the Secret or ReferenceGrant
//! therefore removes the key.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::Piece;

/// Previously accepted versions of keys that have changed in the target.
#[derive(Clone, Debug, Default)]
pub struct AcceptedKeys(BTreeMap<String, (KeyRef, KeyPair)>);

impl AcceptedKeys {
    pub(super) fn new(target: &EncodedSnapshot, accepted: &EncodedSnapshot) -> Self {
        let wanted = &target.rest().keys;
        let digest = |name: &str| wanted.iter().find(|key| key.name == name);
        let changed = accepted.rest().keys.iter().cloned();
        let changed = changed
            .filter(|key| digest(&key.name).is_some_and(|wanted| wanted.digest != key.digest));
        let with_pair = changed.filter_map(|key| {
            let mut pairs = accepted.keys().iter();
            let pair = pairs.find(|pair| pair.name == key.name)?.clone();
            Some((key.name.clone(), (key, pair)))
        });
        Self(with_pair.collect())
    }

    pub(super) fn before(&self, refused: &Piece) -> Option<KeyRef> {
        match refused {
            Piece::Key(name) => self.0.get(name).map(|(key, _)| key.clone()),
            _ => None,
        }
    }

    /// Replaces a pair with its accepted version if `snapshot` references that version.
    pub(super) fn pairs<'a>(
        &self,
        snapshot: &Snapshot,
        target: &'a [KeyPair],
    ) -> Cow<'a, [KeyPair]> {
        let mut pairs = Cow::Borrowed(target);
        for (key, pair) in self.0.values() {
            if snapshot.keys.contains(key)
                && let Some(place) = target.iter().position(|pair| pair.name == key.name)
                && let Some(place) = pairs.to_mut().get_mut(place)
            {
                place.clone_from(pair);
            }
        }
        pairs
    }
}
