//! Builds objects from local files, which replace manifest objects of the same kind and name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_kinds::api::{ConfigMap, Metadata, NamespacedName, Secret, SecretBytes};
use sesame_kinds::world::{AnyObject, Kind, ObjectKey};
use sesame_proto::encoded::Substitutes;
use sesame_proto::key_sets::KeySetCopies;

use super::Manifests;
use super::objects::KeyedObject;

impl Manifests {
    /// Sets local content and fetched key sets for the next scan. Objects for the key sets are
    /// created in `namespace`.
    pub fn set_local(&mut self, usable: &Substitutes, (namespace, copies): (&str, &KeySetCopies)) {
        let Substitutes { pairs, bundles } = usable;
        let pairs = pairs.values().filter_map(|(_, pair)| {
            let name = ObjectKey::parse_as(Kind::Secret, &pair.name)?;
            let data = [
                ("tls.crt", &pair.certificate_chain),
                ("tls.key", &pair.private_key),
            ];
            let data = data.map(|(key, bytes)| (key.to_owned(), SecretBytes(bytes.clone())));
            Some(AnyObject::Secret(Arc::new(Secret {
                metadata: metadata(&name),
                type_: "kubernetes.io/tls".to_owned(),
                data: BTreeMap::from(data),
                ..Secret::default()
            })))
        });
        let bundles = bundles.values().filter_map(|bundle| {
            let name = ObjectKey::parse_as(Kind::ConfigMap, &bundle.name)?;
            let texts = [("ca.crt", &bundle.pem), ("ca.crl", &bundle.crl)];
            let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
            Some(AnyObject::ConfigMap(Arc::new(ConfigMap {
                metadata: metadata(&name),
                data: texts
                    .map(|(key, text)| (key.to_owned(), text.clone()))
                    .collect(),
                ..ConfigMap::default()
            })))
        });
        let copies = copies.iter().map(|(name, copy)| {
            AnyObject::ConfigMap(Arc::new(ConfigMap {
                metadata: metadata(&NamespacedName::new(namespace, name)),
                data: copy.to_data(),
                ..ConfigMap::default()
            }))
        });
        self.local = pairs.chain(bundles).chain(copies).collect();
    }

    pub(super) fn put_local_objects(&mut self) -> Vec<ObjectKey> {
        let mut changed = Vec::new();
        for object in &self.local {
            let object = self.with_lists(object);
            let key = object.key();
            if self.world.get(&key).as_ref() != Some(&object) {
                self.world.insert(object);
                changed.push(key);
            }
        }
        changed
    }

    /// Sets the objects that certificate orders need, for the next scan.
    pub fn set_ordered(&mut self, objects: Vec<AnyObject>) {
        self.ordered = objects;
    }

    /// Objects in manifests and local files take precedence, so no object of a user is replaced.
    pub(super) fn put_ordered_objects(&mut self) -> Vec<ObjectKey> {
        let mut changed = Vec::new();
        let mut put = BTreeSet::new();
        let local: BTreeSet<ObjectKey> = self.local.iter().map(AnyObject::key).collect();
        for object in &self.ordered {
            let key = object.key();
            if local.contains(&key) || self.owners.contains_key(&KeyedObject(object.clone())) {
                continue;
            }
            if self.world.get(&key).as_ref() != Some(object) {
                self.world.insert(object.clone());
                changed.push(key.clone());
            }
            put.insert(key);
        }
        let stale = self.ordered_keys.difference(&put);
        let is_free = |key: &&ObjectKey| {
            let object = self.world.get(key).map(KeyedObject);
            let is_declared = object.is_some_and(|object| self.owners.contains_key(&object));
            !is_declared && !local.contains(key)
        };
        let stale: Vec<ObjectKey> = stale.filter(is_free).cloned().collect();
        for key in stale {
            if self.world.remove(&key) {
                changed.push(key);
            }
        }
        self.ordered_keys = put;
        changed
    }

    /// If local files contain no revocation lists, keeps the manifests' lists, so revoked
    /// certificates stay revoked.
    fn with_lists(&self, object: &AnyObject) -> AnyObject {
        if let AnyObject::ConfigMap(own) = object
            && !own.data.contains_key(LISTS)
            && let Some(AnyObject::ConfigMap(known)) = self.world.get(&object.key())
            && let Some(lists) = known.data.get(LISTS)
        {
            let mut with_lists = ConfigMap::clone(own);
            with_lists.data.insert(LISTS.to_owned(), lists.clone());
            return AnyObject::ConfigMap(Arc::new(with_lists));
        }
        object.clone()
    }
}

const LISTS: &str = "ca.crl";

fn metadata(name: &NamespacedName) -> Metadata {
    Metadata {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        ..Metadata::default()
    }
}
