//! The writes between what there is of Gateways and what there should be. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Basis;
use super::objects::{DIGEST_ANNOTATION, Key, Object, objects, owner, service_name};
use crate::statuses::GatewayProblems;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::world::Kind;
use sesame_published::names::{GATEWAY_LABEL, gateway_id};

/// An object in the cluster that has a label of ours.
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
    /// The Gateway that it is written for; none if it is deleted.
    pub(super) fn gateway(&self) -> Option<&NamespacedName> {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => Some(&object.gateway),
            Self::Delete { .. } => None,
        }
    }

    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => &object.key,
            Self::Delete { key, .. } => key,
        }
    }
}

/// What there is of Gateways, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// All Gateways, ours or not.
    pub(super) gateways: BTreeMap<NamespacedName, Basis>,
    /// UIDs of Gateways that were there, of which there may be something left.
    pub(super) gone: BTreeSet<String>,
    /// What has a label of ours, whosever it is.
    pub(super) objects: BTreeMap<Key, Observed>,
}

/// Everything that has to be written, and who gets nothing; `ours` are the Gateways that we serve.
///
/// Nothing is replaced or deleted but what names the UID of a Gateway that is known. What a Gateway left behind that went
/// while nobody looked is for Kubernetes to collect.
pub(super) fn plan<'a>(
    known: &Known,
    ours: impl Iterator<Item = &'a NamespacedName>,
) -> (Vec<Write>, GatewayProblems) {
    let Known {
        gateways,
        gone,
        objects: observed,
    } = known;
    let mut writes = Vec::new();
    let mut wanted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    let mut claims: BTreeMap<Key, Vec<&Basis>> = BTreeMap::new();
    for gateway in ours {
        let Some(basis) = gateways.get(gateway) else {
            // It has just come or gone: what there is of it stays until both agree.
            unknown.insert(gateway_id(gateway));
            continue;
        };
        let name = NamespacedName::new(&gateway.namespace, &service_name(basis));
        claims.entry((Kind::Service, name)).or_default().push(basis);
    }
    let mut without_service = GatewayProblems::new();
    for (key, claimants) in claims {
        let holder = holder(&claimants, observed.get(&key));
        for basis in claimants {
            if holder.is_none_or(|holder| holder.uid != basis.uid) {
                without_service.insert(basis.gateway.clone(), taken(&key, holder));
            }
        }
        let Some(basis) = holder else {
            continue;
        };
        for object in objects(basis) {
            wanted.insert(object.key.clone());
            match observed.get(&object.key) {
                None => writes.push(Write::Create(object)),
                Some(found) if owner(&found.value) != Some(basis.uid.as_str()) => {
                    without_service.insert(basis.gateway.clone(), taken(&object.key, None));
                }
                Some(found) if is_there(&object.value, &found.value) => {}
                Some(found) => writes.push(Write::Replace {
                    version: found.version.clone(),
                    object,
                }),
            }
        }
    }
    let uids: BTreeSet<&str> = gateways
        .values()
        .map(|basis| basis.uid.as_str())
        .chain(gone.iter().map(String::as_str))
        .collect();
    for (key, found) in observed {
        let of = found.value["metadata"]["labels"][GATEWAY_LABEL].as_str();
        let ours = owner(&found.value).is_some_and(|uid| uids.contains(uid));
        if ours && !wanted.contains(key) && of.is_none_or(|of| !unknown.contains(of)) {
            writes.push(Write::Delete {
                key: key.clone(),
                version: found.version.clone(),
            });
        }
    }
    (writes, without_service)
}

/// Who gets the name: who has it, else the oldest Gateway.
fn holder<'a>(claimants: &[&'a Basis], found: Option<&Observed>) -> Option<&'a Basis> {
    let claimants = claimants.iter().copied();
    match found {
        Some(found) => {
            let uid = owner(&found.value)?;
            claimants.into_iter().find(|basis| basis.uid == uid)
        }
        None => claimants.min_by_key(|basis| (&basis.created, &basis.gateway)),
    }
}

/// Why a Gateway does not get what would have this name.
pub(super) fn taken((kind, name): &Key, holder: Option<&Basis>) -> String {
    let whose = match holder {
        Some(holder) => format!("is of Gateway {}", holder.gateway),
        None => "is there and not of this Gateway: rename or delete it".to_owned(),
    };
    format!("no Service tells the addresses of this Gateway: {kind} {name} {whose}")
}

/// Whether all that we say is so, and nothing that we said before and no longer say.
fn is_there(wanted: &Value, found: &Value) -> bool {
    let digest = |value: &Value| value["metadata"]["annotations"][DIGEST_ANNOTATION].clone();
    let mut wanted = wanted.clone();
    // The items of a list do not say what they are.
    if let Some(fields) = wanted.as_object_mut() {
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
    }
    digest(&wanted) == digest(found) && holds(found, &wanted)
}

/// Whether every field of `part` has its value in `whole`.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, part)| {
            // The API leaves out what is empty, or says null.
            let nothing = matches!(part, Value::Array(all) if all.is_empty());
            let whole = whole.get(name).filter(|whole| !whole.is_null());
            whole.map_or(nothing, |whole| holds(whole, part))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| holds(w, p))
        }
        _ => whole == part,
    }
}
