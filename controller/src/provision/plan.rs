//! The writes between what there is of Gateways and what there should be. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Basis;
use super::objects::{DIGEST_ANNOTATION, Key, Object, objects};
use crate::api::NamespacedName;
use crate::cluster::published::{GATEWAY_LABEL, gateway_id};

/// One of our objects in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) version: String,
    pub(super) value: Value,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// We have none of this name.
    Create(Object),
    /// Ours is another.
    Replace {
        /// What is to be there.
        object: Object,
        /// The version that is replaced.
        version: String,
    },
    /// It belongs to nothing any more.
    Delete {
        /// Which.
        key: Key,
        /// The version that is deleted.
        version: String,
    },
}

impl Write {
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => &object.key,
            Self::Delete { key, .. } => key,
        }
    }
}

/// Everything that has to be written; `ours` are the Gateways that we serve.
pub(super) fn plan<'a>(
    gateways: &BTreeMap<NamespacedName, Basis>,
    ours: impl Iterator<Item = &'a NamespacedName>,
    observed: &BTreeMap<Key, Observed>,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut wanted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    for gateway in ours {
        let Some(basis) = gateways.get(gateway) else {
            // It has just come or gone: what there is of it stays until both agree.
            unknown.insert(gateway_id(gateway));
            continue;
        };
        for object in objects(basis) {
            wanted.insert(object.key.clone());
            match observed.get(&object.key) {
                None => writes.push(Write::Create(object)),
                Some(known) if is_there(&object.value, &known.value) => {}
                Some(known) => writes.push(Write::Replace {
                    version: known.version.clone(),
                    object,
                }),
            }
        }
    }
    for (key, known) in observed {
        let of = known.value["metadata"]["labels"][GATEWAY_LABEL].as_str();
        if !wanted.contains(key) && of.is_none_or(|of| !unknown.contains(of)) {
            writes.push(Write::Delete {
                key: key.clone(),
                version: known.version.clone(),
            });
        }
    }
    writes
}

/// Whether all that we say is so, and nothing that we said before and no longer say.
fn is_there(wanted: &Value, found: &Value) -> bool {
    let digest = |value: &Value| value["metadata"]["annotations"][DIGEST_ANNOTATION].clone();
    digest(wanted) == digest(found) && holds(found, wanted)
}

/// Whether every field of `part` has its value in `whole`.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, part)| {
            // The API leaves out what is empty.
            let nothing = matches!(part, Value::Array(all) if all.is_empty());
            whole.get(name).map_or(nothing, |whole| holds(whole, part))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| holds(w, p))
        }
        _ => whole == part,
    }
}
