//! Defines the ConfigMaps and Secrets to publish, and encodes them as JSON.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use sesame_kinds::api::NamespacedName;
use sesame_published::names::{
    FLEET_LABEL, GATEWAY_ANNOTATION, GATEWAY_LABEL, KEYS_ENTRY, MANIFEST_ENTRY, PART_LABEL, Part,
    SHARD_ENTRY, SIGNATURE_ENTRY, gateway_id,
};

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DesiredObject {
    pub(crate) part: Part,
    pub(crate) name: String,
    pub(crate) entry: &'static str,
    pub(crate) bytes: Bytes,
    pub(crate) summary: BTreeMap<String, String>,
    /// For comparison with the object in the cluster.
    pub(crate) digest: [u8; 32],
}

impl std::fmt::Debug for DesiredObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.bytes.len())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicationOwner {
    pub(crate) gateway: NamespacedName,
    pub(crate) fleet: String,
}

impl DesiredObject {
    pub(crate) fn new(
        owner: &PublicationOwner,
        part: Part,
        name: String,
        bytes: Bytes,
        summary: BTreeMap<String, String>,
    ) -> Self {
        let entry = entry(part);
        let digest = digest(
            &labels(owner, part),
            &owner.gateway.to_string(),
            &BTreeMap::from([(entry, bytes.as_ref())]),
            &summary,
        );
        Self {
            part,
            name,
            entry,
            bytes,
            summary,
            digest,
        }
    }

    pub(crate) fn with(&self, owner: &PublicationOwner, bytes: Bytes) -> Self {
        let (name, summary) = (self.name.clone(), self.summary.clone());
        Self::new(owner, self.part, name, bytes, summary)
    }

    pub(crate) fn json(
        &self,
        owner: &PublicationOwner,
        namespace: &str,
        signature: Option<&[u8]>,
    ) -> Value {
        let encoded = STANDARD.encode(&self.bytes);
        let entry = self.entry;
        let mut object = json!({
            "apiVersion": "v1",
            "kind": kind(self.part),
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": labels(owner, self.part),
                "annotations": {GATEWAY_ANNOTATION: owner.gateway.to_string()},
            },
        });
        match self.part {
            Part::Keys => object["data"] = json!({entry: encoded}),
            Part::Manifest | Part::Config | Part::Endpoints => {
                object["binaryData"] = json!({entry: encoded});
                if let Some(signature) = signature {
                    object["binaryData"][SIGNATURE_ENTRY] = json!(STANDARD.encode(signature));
                }
                if !self.summary.is_empty() {
                    object["data"] = json!(self.summary);
                }
            }
        }
        if self.part == Part::Config {
            object["immutable"] = json!(true);
        }
        object
    }
}

pub(crate) fn kind(part: Part) -> &'static str {
    match part {
        Part::Keys => "Secret",
        Part::Manifest | Part::Config | Part::Endpoints => "ConfigMap",
    }
}

pub(super) fn entry(part: Part) -> &'static str {
    match part {
        Part::Manifest => MANIFEST_ENTRY,
        Part::Config | Part::Endpoints => SHARD_ENTRY,
        Part::Keys => KEYS_ENTRY,
    }
}

fn labels(owner: &PublicationOwner, part: Part) -> BTreeMap<String, String> {
    BTreeMap::from([
        (GATEWAY_LABEL.to_owned(), gateway_id(&owner.gateway)),
        (PART_LABEL.to_owned(), part.as_str().to_owned()),
        (FLEET_LABEL.to_owned(), owner.fleet.clone()),
    ])
}

/// Covers everything that this controller sets.
pub(super) fn digest(
    labels: &BTreeMap<String, String>,
    gateway: &str,
    binary: &BTreeMap<&str, &[u8]>,
    text: &BTreeMap<String, String>,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for label in [GATEWAY_LABEL, PART_LABEL, FLEET_LABEL] {
        field(labels.get(label).map_or(b"".as_slice(), String::as_bytes));
    }
    field(gateway.as_bytes());
    for (name, bytes) in binary {
        field(name.as_bytes());
        field(bytes);
    }
    field(b"");
    for (name, value) in text {
        field(name.as_bytes());
        field(value.as_bytes());
    }
    hash.finalize().into()
}
