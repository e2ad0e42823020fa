//! Tracks the digests of published objects, and keeps endpoint shards, which plans merge.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use sesame_proto::bounds;
use sesame_proto::schema::RolloutRecord;

use super::objects::{self, DesiredObject, PublicationOwner};
use super::signing::{Seal, Sealed, Signing};
use crate::watch::Received;
use sesame_published::names::{
    FLEET_LABEL, GATEWAY_ANNOTATION, GATEWAY_LABEL, KEY_SECRETS_ENTRY, PART_LABEL, PUBLISHER, Part,
    SIGNATURE_ENTRY, gateway_id,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublishedObject {
    pub(super) part: Part,
    pub(super) gateway: String,
    pub(super) digest: [u8; 32],
    pub(super) seal: Seal,
    /// Increases with each write.
    pub(super) version: u64,
    /// Content of an endpoint shard; empty for other parts.
    pub(super) bytes: Bytes,
    /// Empty unless the object is a manifest.
    pub(super) shards: Vec<String>,
    /// `None` unless the object is the manifest of a staged revision.
    pub(super) rollout: Option<Arc<RolloutRecord>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PublishedObjects(BTreeMap<(&'static str, String), PublishedObject>);

impl PublishedObjects {
    pub(super) fn get(&self, part: Part, name: &str) -> Option<&PublishedObject> {
        self.0.get(&(objects::kind(part), name.to_owned()))
    }

    pub(super) fn for_gateway<'a>(
        &'a self,
        gateway: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a PublishedObject)> {
        self.0
            .iter()
            .filter(move |(_, entry)| entry.gateway == gateway)
            .map(|((_, name), entry)| (name.as_str(), entry))
    }

    pub(super) fn latest_stamp(&self) -> u64 {
        let stamps = self.0.values().map(|entry| match entry.seal {
            Seal::Good(stamp) => stamp,
            Seal::None | Seal::Bad => 0,
        });
        stamps.max().unwrap_or(0)
    }

    pub(super) fn gateways(&self) -> std::collections::BTreeSet<&str> {
        self.0
            .values()
            .map(|entry| entry.gateway.as_str())
            .collect()
    }

    pub(super) fn list(&mut self, kind: &'static str, found: Vec<(String, PublishedObject)>) {
        self.0.retain(|(of, _), _| *of != kind);
        for (name, entry) in found {
            self.0.insert((kind, name), entry);
        }
    }

    /// Ignores outdated versions. Returns false for a watch event of this controller's own write.
    pub(super) fn put(&mut self, name: &str, entry: PublishedObject) -> bool {
        let key = (objects::kind(entry.part), name.to_owned());
        match self.0.get(&key) {
            Some(known) if known.version > entry.version || *known == entry => false,
            _ => {
                self.0.insert(key, entry);
                true
            }
        }
    }

    /// Ignores outdated versions. Returns true if the object was removed.
    pub(super) fn remove(&mut self, kind: &'static str, name: &str, version: u64) -> bool {
        let key = (kind, name.to_owned());
        let known = self.0.get(&key);
        let gone = known.is_some_and(|known| known.version <= version);
        if gone {
            self.0.remove(&key);
        }
        gone
    }
}

impl PublishedObject {
    /// Returns true if the content is the same and the signature, if required, is valid.
    pub(super) fn is(&self, object: &DesiredObject) -> bool {
        self.digest == object.digest && self.seal != Seal::Bad
    }

    pub(super) fn from_write(
        object: &DesiredObject,
        owner: &PublicationOwner,
        version: u64,
        seal: Seal,
    ) -> Self {
        let bare = Self {
            part: object.part,
            gateway: gateway_id(&owner.gateway),
            digest: object.digest,
            seal,
            version,
            bytes: Bytes::new(),
            shards: Vec::new(),
            rollout: None,
        };
        bare.with_content(&object.bytes)
    }

    fn with_content(self, content: &Bytes) -> Self {
        match self.part {
            Part::Endpoints => Self {
                bytes: content.clone(),
                ..self
            },
            Part::Manifest => {
                // An invalid manifest will be replaced.
                let manifest = bounds::manifest(content).unwrap_or_default();
                let all = manifest.config.into_iter().chain(manifest.endpoints);
                Self {
                    shards: all.map(|shard| shard.name).collect(),
                    rollout: manifest.rollout.map(Arc::new),
                    ..self
                }
            }
            Part::Config | Part::Keys => self,
        }
    }

    /// Returns `None` if the object is not ours or lacks a part label.
    pub(super) fn from_received(
        kind: &'static str,
        received: &Received,
        signing: &Signing,
    ) -> Option<Self> {
        if !is_ours(received) {
            return None;
        }
        let labels = received.texts("/metadata/labels");
        let part = Part::parse(labels.get(PART_LABEL)?)?;
        if objects::kind(part) != kind {
            return None;
        }
        let (encoded, text) = match part {
            Part::Keys => (received.texts("/data"), BTreeMap::new()),
            Part::Manifest | Part::Config | Part::Endpoints => {
                (received.texts("/binaryData"), received.texts("/data"))
            }
        };
        let mut binary: BTreeMap<String, Vec<u8>> = encoded
            .into_iter()
            .map(|(name, text)| (name, STANDARD.decode(text).unwrap_or_default()))
            .collect();
        // A signed part has a signature in addition to the entries that the digest covers. Other
        // parts must not have one.
        let signature = match part {
            Part::Manifest | Part::Endpoints if signing.is_on() => binary.remove(SIGNATURE_ENTRY),
            _ => None,
        };
        let annotations = received.texts("/metadata/annotations");
        let text_of = |map: &BTreeMap<String, String>, name: &str, default: &str| {
            map.get(name).map_or(default, String::as_str).to_owned()
        };
        let gateway = text_of(&annotations, GATEWAY_ANNOTATION, "");
        let views = binary.iter();
        let views = views.map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let digest = objects::digest(&labels, &gateway, &views.collect(), &text);
        let content = Bytes::from(binary.remove(objects::entry(part)).unwrap_or_default());
        let seal = signing.seen(&Sealed {
            part,
            name: &received.name().name,
            gateway: &gateway,
            fleet: &text_of(&labels, FLEET_LABEL, ""),
            key_secrets: &text_of(&text, KEY_SECRETS_ENTRY, "0"),
            content: &content,
            signature: signature.as_deref(),
        });
        let bare = Self {
            part,
            gateway: text_of(&labels, GATEWAY_LABEL, ""),
            digest,
            seal,
            version: received.version().parse().unwrap_or(0),
            bytes: Bytes::new(),
            shards: Vec::new(),
            rollout: None,
        };
        Some(bare.with_content(&content))
    }
}

/// Checks the field manager, because owner references cannot cross namespaces and labels are copied
/// with objects.
pub(super) fn is_ours(received: &Received) -> bool {
    let managers = received.kept.managed.as_ref().and_then(Value::as_array);
    let mut managers = managers.into_iter().flatten();
    managers.any(|entry| entry["manager"] == PUBLISHER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_written_by_others_are_not_ours() {
        let seen = |managers: &[&str]| {
            let managed: Vec<Value> = managers.iter().map(|m| json!({"manager": m})).collect();
            let object = json!({"metadata": {
                "name": "ns.edge.config-1", "managedFields": managed,
                "labels": {PART_LABEL: "config", GATEWAY_LABEL: "1"},
            }});
            let received = serde_json::from_value(object).expect("an object");
            PublishedObject::from_received("ConfigMap", &received, &Signing::default()).is_some()
        };
        assert!(seen(&["kubectl-edit", PUBLISHER]));
        assert!(!seen(&["kubectl-client-side-apply"]));
        assert!(!seen(&[]));
    }
}
