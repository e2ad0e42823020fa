//! Plans the writes between the objects that Gateways have and those that they should have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Basis;
use super::kept::with_kept;
use super::objects::{
    DIGEST_ANNOTATION, Key, ServiceObject, needs_ports, objects, owner, service_name,
};
use crate::statuses::GatewayProblems;
use crate::watch::holds;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::settings::GatewaySettings;
use sesame_gateway_api::world::Kind;
use sesame_published::names::{GATEWAY_LABEL, gateway_id};

/// An object in the cluster that has a label of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExistingObject {
    pub(super) version: String,
    pub(super) value: Value,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceWrite {
    /// Create the object: we have none of this name.
    Create(ServiceObject),
    /// Replace ours, which differs.
    Replace {
        /// Object that should exist.
        object: ServiceObject,
        /// Version that is replaced.
        version: String,
    },
    /// Delete the object, which belongs to nothing any more.
    Delete {
        /// Kind and name.
        key: Key,
        /// Version that is deleted.
        version: String,
    },
}

impl ServiceWrite {
    /// Returns the Gateway that the object is written for; none if the object is deleted.
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

/// A Gateway that wants a Service, and its objects.
struct ServiceClaim<'a> {
    basis: &'a Basis,
    objects: Vec<ServiceObject>,
}

/// Gateways, and the objects that they have.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// All Gateways, ours or not.
    pub(super) gateways: BTreeMap<NamespacedName, Basis>,
    /// UIDs of Gateways that are gone, and may have left something behind.
    pub(super) gone: BTreeSet<String>,
    /// Objects with a label of ours, whosever they are.
    pub(super) objects: BTreeMap<Key, ExistingObject>,
}

/// Returns all writes, and the Gateways that get no Service; `ours` are the Gateways that we serve. What one without
/// settings has stays as it is.
///
/// Only objects that name the UID of a known Gateway are replaced or deleted. Whatever a Gateway left behind that went
/// while nobody looked, Kubernetes collects.
pub(super) fn plan<'a>(
    inventory: &Inventory,
    ours: impl Iterator<Item = &'a NamespacedName>,
    settings: &BTreeMap<NamespacedName, GatewaySettings>,
) -> (Vec<ServiceWrite>, GatewayProblems) {
    let Inventory {
        gateways,
        gone: _,
        objects: existing,
    } = inventory;
    let mut writes = Vec::new();
    let mut wanted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    let mut claims: BTreeMap<Key, Vec<ServiceClaim<'_>>> = BTreeMap::new();
    for gateway in ours {
        let known = gateways.get(gateway).zip(settings.get(gateway));
        let Some((basis, settings)) = known else {
            // It has just come or gone: the objects that it has stay until both watches agree.
            unknown.insert(gateway_id(gateway));
            continue;
        };
        let name = NamespacedName::new(&gateway.namespace, &service_name(basis));
        let objects = objects(basis, settings);
        if keeps_what_it_has(&objects, settings) {
            unknown.insert(gateway_id(gateway));
        } else if !objects.is_empty() {
            let claim = ServiceClaim { basis, objects };
            claims.entry((Kind::Service, name)).or_default().push(claim);
        }
    }
    let mut without_service = GatewayProblems::new();
    for (key, claimants) in claims {
        let holder = holder(&claimants, existing.get(&key));
        for ServiceClaim { basis, .. } in &claimants {
            if holder.is_none_or(|holder| holder.uid != basis.uid) {
                without_service.insert(basis.gateway.clone(), taken(&key, holder));
            }
        }
        let claim = claimants
            .into_iter()
            .find(|claim| holder.is_some_and(|holder| holder.uid == claim.basis.uid));
        let Some(ServiceClaim { basis, objects }) = claim else {
            continue;
        };
        for object in objects {
            wanted.insert(object.key.clone());
            match existing.get(&object.key) {
                None => writes.push(ServiceWrite::Create(object)),
                Some(found) if owner(&found.value) != Some(basis.uid.as_str()) => {
                    without_service.insert(basis.gateway.clone(), taken(&object.key, None));
                }
                Some(found) if is_there(&object.value, &found.value) => {}
                // A Service cannot get or lose an address of its own: the next plan makes it anew.
                Some(found) if is_headless(&object.value) != is_headless(&found.value) => {
                    writes.push(ServiceWrite::Delete {
                        key: object.key,
                        version: found.version.clone(),
                    });
                }
                Some(found) => writes.push(replacement(object, found)),
            }
        }
    }
    writes.extend(leftovers(inventory, &wanted, &unknown));
    (writes, without_service)
}

/// Returns true if no listener is accepted now. What the Gateway has is not given up for that, and neither is its address.
fn keeps_what_it_has(objects: &[ServiceObject], settings: &GatewaySettings) -> bool {
    objects.is_empty() && needs_ports(settings)
}

fn replacement(object: ServiceObject, found: &ExistingObject) -> ServiceWrite {
    ServiceWrite::Replace {
        version: found.version.clone(),
        object: ServiceObject {
            value: with_kept(object.value, &found.value),
            ..object
        },
    }
}

/// Deletes the objects of ours that nobody wants; those of `unknown` Gateways, which are named as in labels, stay.
fn leftovers(
    inventory: &Inventory,
    wanted: &BTreeSet<Key>,
    unknown: &BTreeSet<String>,
) -> impl Iterator<Item = ServiceWrite> {
    let known = inventory.gateways.values().map(|basis| &basis.uid);
    let uids: BTreeSet<&str> = known.chain(&inventory.gone).map(String::as_str).collect();
    let left = inventory.objects.iter().filter(move |(key, found)| {
        let of = found.value["metadata"]["labels"][GATEWAY_LABEL].as_str();
        let ours = owner(&found.value).is_some_and(|uid| uids.contains(uid));
        ours && !wanted.contains(key) && of.is_none_or(|of| !unknown.contains(of))
    });
    left.map(|(key, found)| ServiceWrite::Delete {
        key: key.clone(),
        version: found.version.clone(),
    })
}

/// Returns the Gateway that gets the name: the one that has it, or else the oldest.
fn holder<'a>(claimants: &[ServiceClaim<'a>], found: Option<&ExistingObject>) -> Option<&'a Basis> {
    let claimants = claimants.iter().map(|claim| claim.basis);
    match found {
        Some(found) => {
            let uid = owner(&found.value)?;
            claimants.into_iter().find(|basis| basis.uid == uid)
        }
        None => claimants.min_by_key(|basis| (&basis.created, &basis.gateway)),
    }
}

/// Returns the reason why a Gateway does not get the object of this name.
pub(super) fn taken((kind, name): &Key, holder: Option<&Basis>) -> String {
    let whose = match holder {
        Some(holder) => format!("is of Gateway {}", holder.gateway),
        None => "is there and not of this Gateway: rename or delete it".to_owned(),
    };
    format!("no Service tells the addresses of this Gateway: {kind} {name} {whose}")
}

fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// Returns true if every field that we write is there, and none that we wrote before and no longer write.
fn is_there(wanted: &Value, found: &Value) -> bool {
    let digest = |value: &Value| value["metadata"]["annotations"][DIGEST_ANNOTATION].clone();
    let mut wanted = wanted.clone();
    // The items of a list have no kind.
    if let Some(fields) = wanted.as_object_mut() {
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
    }
    digest(&wanted) == digest(found) && holds(found, &wanted)
}
