//! Plans adoption, in which the controller takes over the objects of an existing fleet that have no
//! owner. Users approve it by annotating the Gateway with digests of the objects and changes that
//! they reviewed. Nothing is written before approval, and objects with another owner are never
//! adopted.

mod claims;
mod defaults;
mod difference;
mod preview;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sesame_proto::digest::sha256;

pub(super) use self::claims::claim_fleet;
pub(crate) use self::difference::FieldChange;
pub(crate) use self::preview::{AdoptionPreview, ObjectAction};
use super::Basis;
use super::fleet::{RELEASED_ANNOTATION, with_initial_replicas};
use super::kept::{WRITTEN_ANNOTATION, with_kept};
use super::owned::{ExistingObject, OwnedObject, controller_of};
use super::plan::{Inventory, OwnedWrite, is_replaceable};
use sesame_published::names::ADOPT_ANNOTATION;

/// Length of each object's digest.
const DIGITS: usize = 16;
const SEPARATOR: char = '.';
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdoptionAction {
    Created,
    Kept,
    Adopted {
        /// Changed fields, except fields that record ownership.
        changes: Vec<FieldChange>,
        /// Digest of this object and its changes, as it appears in an agreement.
        consent: String,
    },
    /// Explains why the object cannot be adopted.
    Foreign(String),
}

impl AdoptionAction {
    pub(crate) fn restarts_pods(&self) -> bool {
        match self {
            Self::Adopted { changes, .. } => changes.iter().any(FieldChange::restarts_pods),
            Self::Created | Self::Kept | Self::Foreign(_) => false,
        }
    }
}

enum AdoptionState {
    Settled,
    Agreed(Vec<OwnedWrite>),
    Open {
        /// Message that explains why the fleet is incomplete.
        why: String,
        /// ConfigMap with the intended objects.
        preview: OwnedObject,
    },
}

fn assess(inventory: &Inventory, basis: &Basis, objects: &[OwnedObject]) -> AdoptionState {
    let existing = |object: &OwnedObject| inventory.objects.get(&object.key);
    let is_unowned = |object| existing(object).is_some_and(|found| found.owner.is_none());
    if !objects.iter().any(is_unowned) {
        return AdoptionState::Settled;
    }
    let actions = objects.iter();
    let actions: Vec<AdoptionAction> = actions
        .map(|object| action(object, existing(object), &basis.uid))
        .collect();
    let given = basis.adopt.as_deref().unwrap_or_default();
    if consent(&actions).is_some_and(|wanted| covers(given, &wanted)) {
        let all = objects.iter().zip(&actions);
        let writes = all.filter_map(|(object, action)| match action {
            AdoptionAction::Created => {
                Some(OwnedWrite::Create(with_initial_replicas(object.clone())))
            }
            AdoptionAction::Adopted { .. } => existing(object).map(|found| OwnedWrite::Replace {
                object: adopted(object, found),
                version: found.version.clone(),
            }),
            AdoptionAction::Kept | AdoptionAction::Foreign(_) => None,
        });
        return AdoptionState::Agreed(writes.collect());
    }
    AdoptionState::Open {
        why: not_complete(basis, objects, &actions),
        preview: preview::config_map(basis, &inventory.namespace, objects, consent(&actions)),
    }
}

/// Returns `None` if an object is foreign or there is nothing to adopt.
fn consent(actions: &[AdoptionAction]) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for action in actions {
        match action {
            AdoptionAction::Created | AdoptionAction::Kept => {}
            AdoptionAction::Adopted { consent, .. } => all.push(consent),
            AdoptionAction::Foreign(_) => return None,
        }
    }
    (!all.is_empty()).then(|| all.join(&SEPARATOR.to_string()))
}

fn covers(given: &str, wanted: &str) -> bool {
    let given: BTreeSet<&str> = given.split(SEPARATOR).collect();
    wanted.split(SEPARATOR).all(|part| given.contains(part))
}

/// `found` is the existing object with the same name.
fn action(wanted: &OwnedObject, found: Option<&ExistingObject>, uid: &str) -> AdoptionAction {
    let Some(found) = found else {
        return AdoptionAction::Created;
    };
    if found.owner.as_deref() == Some(uid) {
        return AdoptionAction::Kept;
    }
    if let Some(why) = foreign(wanted, found) {
        return AdoptionAction::Foreign(why);
    }
    let changes = difference::changes(&found.value, &adopted(wanted, found).value);
    let (kind, name) = &wanted.key;
    let of = &found.value["metadata"]["uid"];
    let shown = json!([uid, kind.as_str(), name.to_string(), of, changes]);
    let mut consent = sha256(shown.to_string().as_bytes());
    consent.truncate(DIGITS);
    AdoptionAction::Adopted { changes, consent }
}

/// Returns `None` if adoption is possible.
fn foreign(wanted: &OwnedObject, found: &ExistingObject) -> Option<String> {
    let metadata = &found.value["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    if let Some(owner) = owners.and_then(|owners| owners.first()) {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        return Some(format!("{} {} owns it", text("kind"), text("name")));
    }
    if let Some(uid) = &found.owner {
        return Some(format!("the Gateway with UID {uid} owns it"));
    }
    let controller = controller_of(&found.value);
    if !controller.is_empty() && controller != controller_of(&wanted.value) {
        return Some(format!("the controller {controller:?} manages it"));
    }
    let manager = &metadata["labels"][MANAGED_BY];
    if let Some(manager) = manager.as_str().filter(|_| {
        let ours = &wanted.value["metadata"]["labels"][MANAGED_BY];
        manager != ours
    }) {
        return Some(format!(
            "its label {MANAGED_BY} says that {manager:?} manages it; remove the label if it no \
            longer does"
        ));
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Some("it is being deleted".to_owned());
    }
    let same = is_replaceable(wanted, &found.value);
    (!same).then(|| {
        "its selector or role differs and cannot be changed; delete it (with --cascade=orphan, \
        its Pods keep running)"
            .to_owned()
    })
}

/// Keeps labels and annotations from other writers.
fn adopted(wanted: &OwnedObject, found: &ExistingObject) -> OwnedObject {
    let mut before = found.value.clone();
    let annotations = &mut before["metadata"]["annotations"];
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(RELEASED_ANNOTATION);
    }
    // Without this annotation, existing labels and annotations would be treated as if Sesame had
    // written them.
    if annotations[WRITTEN_ANNOTATION].is_null() {
        annotations[WRITTEN_ANNOTATION] = Value::from("");
    }
    OwnedObject {
        value: with_kept(wanted.value.clone(), &before),
        ..wanted.clone()
    }
}

fn not_complete(basis: &Basis, objects: &[OwnedObject], actions: &[AdoptionAction]) -> String {
    let lack = super::plan::lack(super::kinds::OwnedKind::DaemonSet);
    let mut adoptable = Vec::new();
    for (object, action) in objects.iter().zip(actions) {
        let (kind, name) = &object.key;
        match action {
            AdoptionAction::Created | AdoptionAction::Kept => {}
            AdoptionAction::Adopted { .. } => adoptable.push(format!("{kind} {name}")),
            AdoptionAction::Foreign(why) => {
                return format!(
                    "{lack}: {kind} {name} exists and does not belong to this Gateway: {why}; \
                    rename or delete it"
                );
            }
        }
    }
    let (first, more) = adoptable
        .split_first()
        .map_or(("", &[][..]), |(f, m)| (f, m));
    let more = match more {
        [] => String::new(),
        [one] => format!(", nor does {one}"),
        all => format!(", nor do {}", all.join(", ")),
    };
    let stale = match &basis.adopt {
        Some(_) => {
            format!(
                " (its current annotation {ADOPT_ANNOTATION} is for another state of these \
                objects)"
            )
        }
        None => String::new(),
    };
    format!(
        "{lack}: {first} exists and does not belong to this Gateway{more}; to adopt, run \
        `sesame-controller fleet diff {}`, which shows the changes and prints the value for \
        {ADOPT_ANNOTATION}{stale}; or rename or delete them",
        basis.gateway
    )
}
