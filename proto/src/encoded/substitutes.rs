//! Replaces a snapshot's keys and trust bundles with a host's local files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{EncodedSnapshot, Rest};
use crate::keys::KeyPair;
use crate::schema::{KeyRef, TrustBundle};

/// A host's own key pairs and trust bundles, by the name of the replaced object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Substitutes {
    /// Key pairs.
    pub pairs: BTreeMap<String, (KeyRef, KeyPair)>,
    /// Trust bundles. If a bundle has no revocation lists, the replaced bundle's lists remain.
    pub bundles: BTreeMap<String, TrustBundle>,
}

impl EncodedSnapshot {
    /// Replaces key pairs and trust bundles by name. Returns `None` if nothing changes.
    pub fn with_substitutes(&self, substitutes: &Substitutes) -> Option<Self> {
        let Substitutes { pairs, bundles } = substitutes;
        let is_new = |(name, (_, pair)): (&String, &(KeyRef, KeyPair))| {
            self.serials().contains_key(name) && !self.keys.contains(pair)
        };
        if bundles.is_empty() && !pairs.iter().any(is_new) {
            return None;
        }
        let mut rest = self.rest().clone();
        for key in &mut rest.keys {
            if let Some((new, _)) = pairs.get(&key.name) {
                key.clone_from(new);
            }
        }
        for bundle in &mut rest.trust_bundles {
            if let Some(new) = bundles.get(&bundle.name) {
                bundle.pem.clone_from(&new.pem);
                if !new.crl.is_empty() {
                    bundle.clone_from(new);
                }
            }
        }
        let own = |key: &KeyRef| match pairs.get(&key.name) {
            Some((_, pair)) => Some(pair.clone()),
            None => self.keys.iter().find(|pair| pair.name == key.name).cloned(),
        };
        let keys: Vec<KeyPair> = rest.keys.iter().filter_map(own).collect();
        let changed = Self {
            rest: Arc::new(Rest::new(rest)),
            keys: keys.into(),
            ..self.clone()
        };
        (changed != *self).then_some(changed)
    }

    /// Returns the names of keys whose files are missing on the host.
    pub fn missing_on_host(&self) -> Vec<String> {
        if self.serials().len() == self.keys.len() {
            return Vec::new();
        }
        let missing = self.rest().keys.iter().filter(|key| key.on_host);
        missing.map(|key| key.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Backend, Snapshot};

    fn pair(name: &str, content: &str) -> (KeyRef, KeyPair) {
        let pair = KeyPair {
            name: name.to_owned(),
            certificate_chain: content.as_bytes().to_vec(),
            private_key: content.as_bytes().to_vec(),
            ocsp_staple: Vec::new(),
        };
        let key = KeyRef {
            name: name.to_owned(),
            digest: pair.digest(),
            serial: content.to_owned(),
            not_after: 7,
            on_host: false,
        };
        (key, pair)
    }

    #[test]
    fn host_substitutes_apply_only_to_named_objects() {
        let bundle = |pem: &str| TrustBundle {
            name: "ConfigMap/ns/ca".to_owned(),
            pem: pem.to_owned(),
            crl: "lists".to_owned(),
            ..TrustBundle::default()
        };
        let make = |keys: &[(KeyRef, KeyPair)], pem: &str| {
            let snapshot = Snapshot {
                keys: keys.iter().map(|(key, _)| key.clone()).collect(),
                trust_bundles: vec![bundle(pem)],
                backends: vec![Backend::default()],
                ..Snapshot::default()
            };
            EncodedSnapshot::new(
                &snapshot,
                keys.iter().map(|(_, pair)| pair.clone()).collect(),
            )
        };
        let named = |name: &str, content: &str| (name.to_owned(), pair(name, content));
        let on_host = KeyRef {
            name: "Secret/ns/b".to_owned(),
            on_host: true,
            ..KeyRef::default()
        };
        let keys = [pair("Secret/ns/a", "1"), pair("Secret/ns/b", "2")];
        let mut snapshot = make(&keys, "x").snapshot();
        snapshot.keys[1] = on_host;
        let without = EncodedSnapshot::new(&snapshot, vec![keys[0].1.clone()]);
        assert_eq!(without.missing_on_host(), ["Secret/ns/b"]);
        let substitutes = |pairs: &[(String, (KeyRef, KeyPair))], pem: &[&str]| Substitutes {
            pairs: pairs.iter().cloned().collect(),
            bundles: pem
                .iter()
                .map(|pem| {
                    let own = TrustBundle {
                        crl: String::new(),
                        ..bundle(pem)
                    };
                    (own.name.clone(), own)
                })
                .collect(),
        };
        let pairs = [named("Secret/ns/b", "2"), named("Secret/ns/c", "2")];
        let substitutes_of_host = substitutes(&pairs, &[]);
        let expected = make(&keys, "x");
        for before in [
            without,
            make(&[keys[0].clone(), pair("Secret/ns/b", "1")], "x"),
        ] {
            let after = before.with_substitutes(&substitutes_of_host).unwrap();
            assert_eq!(after, expected);
            assert_eq!(after.missing_on_host(), Vec::<String>::new());
            assert_eq!(after.with_substitutes(&substitutes_of_host), None);
        }
        let substitutes_of_host = substitutes(&pairs, &["y"]);
        let after = expected.with_substitutes(&substitutes_of_host).unwrap();
        assert_eq!(after, make(&keys, "y"), "revocation lists are kept");
        assert_eq!(after.with_substitutes(&substitutes_of_host), None);
    }
}
