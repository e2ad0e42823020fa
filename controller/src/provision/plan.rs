//! Plans the writes that turn Gateways' existing objects into the desired objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::adoption::claim_fleet;
pub(super) use super::inventory::Inventory;
use super::kept::with_kept;
use super::kinds::{OwnedKey, OwnedKind, Purpose};
use super::owned::{
    DIGEST_ANNOTATION, ExistingObject, OwnedObject, controller_of, with_controller,
};
use super::upstream::claim_upstream;
use super::{Basis, fleet, service};
use crate::statuses::ProvisionReport;
use crate::watch::holds;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{GATEWAY_LABEL, gateway_id};
use sesame_resolver::settings::GatewaySettings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnedWrite {
    Create(OwnedObject),
    Replace {
        object: OwnedObject,
        /// Resource version of the object to replace.
        version: String,
    },
    Delete {
        key: OwnedKey,
        /// Resource version of the object to delete.
        version: String,
    },
}

impl OwnedWrite {
    /// Returns `None` for a deletion.
    pub(super) fn gateway(&self) -> Option<&NamespacedName> {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => Some(&object.gateway),
            Self::Delete { .. } => None,
        }
    }

    pub(super) fn ends_pods(&self) -> bool {
        matches!(self, Self::Delete { key, .. } if key.0.is_workload())
    }

    pub(super) fn key(&self) -> &OwnedKey {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => &object.key,
            Self::Delete { key, .. } => key,
        }
    }
}

pub(super) struct ObjectClaim<'a> {
    basis: &'a Basis,
    objects: Vec<OwnedObject>,
}

/// Keyed by each claim's first object. The Gateway that gets the first object also gets the others.
pub(super) type Claims<'a> = BTreeMap<OwnedKey, Vec<ObjectClaim<'a>>>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OwnedPlan {
    pub(super) writes: Vec<OwnedWrite>,
    pub(super) report: ProvisionReport,
}

impl OwnedPlan {
    pub(super) fn problem(&mut self, kind: OwnedKind, gateway: &NamespacedName, why: String) {
        record_problem(&mut self.report, kind, gateway.clone(), why);
    }
}

pub(super) fn record_problem(
    report: &mut ProvisionReport,
    kind: OwnedKind,
    gateway: NamespacedName,
    why: String,
) {
    let all = match kind.purpose() {
        Purpose::Service => &mut report.without_service,
        Purpose::Fleet | Purpose::Adoption => &mut report.without_fleet,
        Purpose::Upstream => &mut report.without_upstream,
    };
    all.entry(gateway).or_insert(why);
}

/// Leaves a Gateway's objects unchanged if its settings are unknown. In the Gateways' namespaces,
/// changes only objects with the owner UID of a known Gateway. If an object's owner is unknown,
/// Kubernetes garbage-collects the object in a Gateway's namespace, and the plan deletes it in the
/// controller's namespace.
pub(super) fn plan<'a>(
    inventory: &Inventory,
    ours: impl Iterator<Item = &'a NamespacedName>,
    settings: &BTreeMap<NamespacedName, GatewaySettings>,
) -> OwnedPlan {
    let mut plan = OwnedPlan::default();
    let mut wanted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    let mut claims = Claims::new();
    for gateway in ours {
        let settings = settings.get(gateway);
        let basis = settings.and_then(|settings| inventory.basis(gateway, settings));
        let Some((basis, settings)) = basis.zip(settings) else {
            // The Gateway was just created or deleted. Keep its objects until both watches agree.
            unknown.insert(gateway_id(gateway));
            continue;
        };
        let objects = if fleet::is_served_by_pods(basis, settings, &inventory.objects) {
            service::objects(&basis.without_hosts(), settings)
        } else {
            service::objects(basis, settings)
        };
        if basis.is_class
            && inventory.unwatched_home
            && (settings.is_managed() || !objects.is_empty())
        {
            let why = format!(
                "the controller watches only some namespaces, so it creates nothing for Gateways \
                that are served together: set spec.publishing.type None and spec.fleet.management \
                Unmanaged for GatewayClass {:?}",
                basis.class
            );
            plan.problem(OwnedKind::Service, gateway, why);
            unknown.insert(gateway_id(gateway));
            continue;
        }
        if keeps_existing_objects(&objects, settings) {
            unknown.insert(gateway_id(gateway));
        }
        claim(&mut claims, inventory, basis, objects);
        if claim_upstream(&mut plan, &mut claims, inventory, basis, settings) {
            unknown.insert(gateway_id(gateway));
        }
        if !settings.is_managed() {
            release(&mut plan, &mut wanted, inventory, basis);
            continue;
        }
        match fleet_of(inventory, basis, settings) {
            Ok(objects) => {
                wanted.extend(fleet::retained(basis, &objects, &inventory.objects));
                let open = claim_fleet(&mut plan, &mut claims, inventory, basis, objects);
                unknown.extend(open.then(|| gateway_id(gateway)));
            }
            Err(why) => {
                plan.problem(OwnedKind::DaemonSet, gateway, why);
                unknown.insert(gateway_id(gateway));
            }
        }
    }
    settle(&mut plan, &mut wanted, inventory, claims);
    let leftovers = leftovers(inventory, &wanted, &unknown);
    plan.writes.extend(leftovers);
    plan
}

pub(super) fn claim<'a>(
    claims: &mut Claims<'a>,
    inventory: &Inventory,
    basis: &'a Basis,
    objects: Vec<OwnedObject>,
) {
    let objects = objects.into_iter();
    let objects: Vec<_> = objects
        .map(|object| with_controller(object, &inventory.controller))
        .collect();
    if let Some(first) = objects.first() {
        let claimants = claims.entry(first.key.clone()).or_default();
        claimants.push(ObjectClaim { basis, objects });
    }
}

fn fleet_of(
    inventory: &Inventory,
    basis: &Basis,
    settings: &GatewaySettings,
) -> Result<Vec<OwnedObject>, String> {
    let on_pods = settings.is_on_pod_network();
    let mut unwatched = inventory.unwatched.iter();
    if let Some(kind) = unwatched.find(|kind| kind.is_of_workload(on_pods)) {
        return Err(format!(
            "the controller is not permitted to watch objects of kind {kind}, so it \
            manages no fleets: apply controller/deploy/fleets.yaml"
        ));
    }
    let spans = inventory.fleet_spans.as_deref();
    fleet::objects(basis, settings, &inventory.namespace, spans)
}

/// Removes the owner and returns the released objects.
fn release(
    plan: &mut OwnedPlan,
    wanted: &mut BTreeSet<OwnedKey>,
    inventory: &Inventory,
    basis: &Basis,
) {
    let mut released = Vec::new();
    // DaemonSet sorts first among the fleet kinds.
    let first_fleet_key = (OwnedKind::DaemonSet, NamespacedName::default());
    for (key, found) in inventory.objects.range(first_fleet_key..) {
        let (kind, name) = key;
        if kind.is_of_fleet() && found.is_owned_by(basis) {
            wanted.insert(key.clone());
            plan.writes.push(OwnedWrite::Replace {
                object: fleet::released(basis, key, found),
                version: found.version.clone(),
            });
        } else if fleet::is_released_from(basis, *kind, found) {
            released.push(format!("{kind} {name}"));
        }
    }
    if !released.is_empty() {
        let all = released.join(", ");
        let why = format!(
            "the fleet is no longer managed: {all} keep running unchanged, even after this \
            Gateway is deleted"
        );
        let released_by_gateway = &mut plan.report.released;
        released_by_gateway.insert(basis.gateway.clone(), why);
    }
}

fn settle(
    plan: &mut OwnedPlan,
    wanted: &mut BTreeSet<OwnedKey>,
    inventory: &Inventory,
    claims: Claims<'_>,
) {
    let existing = &inventory.objects;
    for (key, claimants) in claims {
        let holder = holder(&claimants, existing.get(&key));
        for ObjectClaim { basis, .. } in &claimants {
            if holder.is_none_or(|holder| holder.uid != basis.uid) {
                plan.problem(key.0, &basis.gateway, taken(&key, holder));
            }
        }
        let claim = claimants
            .into_iter()
            .find(|claim| holder.is_some_and(|holder| holder.uid == claim.basis.uid));
        let Some(ObjectClaim { basis, objects }) = claim else {
            continue;
        };
        for object in objects {
            wanted.insert(object.key.clone());
            match existing.get(&object.key) {
                None => plan
                    .writes
                    .push(OwnedWrite::Create(fleet::with_initial_replicas(object))),
                Some(found) if !found.is_owned_by(basis) => {
                    plan.problem(object.key.0, &basis.gateway, taken(&object.key, None));
                }
                Some(found) if is_there(&object, &found.value) => {}
                // The next plan recreates the object.
                Some(found) if !is_replaceable(&object, &found.value) => {
                    plan.writes.push(OwnedWrite::Delete {
                        key: object.key,
                        version: found.version.clone(),
                    });
                }
                Some(found) => plan.writes.push(replacement(object, found)),
            }
        }
    }
}

/// Returns true if existing objects and their addresses must be kept, because no listener is
/// accepted.
fn keeps_existing_objects(objects: &[OwnedObject], settings: &GatewaySettings) -> bool {
    objects.is_empty() && service::needs_ports(settings)
}

fn replacement(object: OwnedObject, found: &ExistingObject) -> OwnedWrite {
    OwnedWrite::Replace {
        version: found.version.clone(),
        object: OwnedObject {
            value: with_kept(object.value, &found.value),
            ..object
        },
    }
}

/// Keeps objects whose Gateway label is in `unknown`.
fn leftovers(
    inventory: &Inventory,
    wanted: &BTreeSet<OwnedKey>,
    unknown: &BTreeSet<String>,
) -> Vec<OwnedWrite> {
    let known = inventory.bases().map(|basis| &basis.uid);
    let uids: BTreeSet<&str> = known.chain(&inventory.gone).map(String::as_str).collect();
    let left = inventory.objects.iter().filter(|(key, found)| {
        let of = found.value["metadata"]["labels"][key.0.label()].as_str();
        let owner = found.owner.as_deref();
        // Kubernetes garbage-collects only objects in the same namespace as their Gateway. Anyone
        // can write the annotation of an implied Gateway, so this process must know the Gateway.
        let is_left = |uid| key.0.is_remote() || uids.contains(uid);
        let ours =
            owner.is_some_and(is_left) && controller_of(&found.value) == inventory.controller;
        ours && !wanted.contains(*key) && of.is_none_or(|of| !unknown.contains(of))
    });
    let delete = |(key, found): (&OwnedKey, &ExistingObject)| OwnedWrite::Delete {
        key: key.clone(),
        version: found.version.clone(),
    };
    left.map(delete).collect()
}

/// Returns the current owner, or else the oldest claimant.
fn holder<'a>(claimants: &[ObjectClaim<'a>], found: Option<&ExistingObject>) -> Option<&'a Basis> {
    let mut claimants = claimants.iter().map(|claim| claim.basis);
    match found {
        Some(found) => claimants.find(|basis| found.is_owned_by(basis)),
        None => claimants.min_by_key(|basis| (&basis.created, &basis.gateway)),
    }
}

pub(super) fn taken((kind, name): &OwnedKey, holder: Option<&Basis>) -> String {
    let whose = match holder {
        Some(holder) => format!("belongs to Gateway {}", holder.gateway),
        None if kind.is_of_fleet() => format!(
            "exists and does not belong to this Gateway: rename or delete it, or give it a label \
            {GATEWAY_LABEL} to adopt it"
        ),
        None => "exists and does not belong to this Gateway: rename or delete it".to_owned(),
    };
    let lack = lack(*kind);
    format!("{lack}: {kind} {name} {whose}")
}

pub(super) fn lack(kind: OwnedKind) -> &'static str {
    match kind.purpose() {
        Purpose::Service => "this Gateway has no Service for its addresses",
        Purpose::Fleet | Purpose::Adoption => "the fleet of this Gateway is incomplete",
        Purpose::Upstream => "the Gateway in front of this one is incomplete",
    }
}

/// Returns false if a field is missing or obsolete.
fn is_there(wanted: &OwnedObject, found: &Value) -> bool {
    let digest = |value: &Value| value["metadata"]["annotations"][DIGEST_ANNOTATION].clone();
    let mut value = wanted.value.clone();
    // Items in a list lack `apiVersion` and `kind`.
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
    }
    if digest(&value) != digest(found) {
        return false;
    }
    if !wanted.key.0.is_workload() {
        return holds(found, &value);
    }
    let comparable = fleet::with_comparable_quantities;
    holds(&comparable(found.clone()), &comparable(value))
}

/// Returns false if immutable fields differ. A Gateway is recreated if its class changes, because
/// the old class's controller must clean up.
pub(super) fn is_replaceable(wanted: &OwnedObject, found: &Value) -> bool {
    let wanted_value = &wanted.value;
    let is_headless = |service: &Value| service["spec"]["clusterIP"] == "None";
    match wanted.key.0 {
        OwnedKind::Service => is_headless(wanted_value) == is_headless(found),
        OwnedKind::DaemonSet | OwnedKind::Deployment => {
            wanted_value["spec"]["selector"] == found["spec"]["selector"]
        }
        OwnedKind::RoleBinding => wanted_value["roleRef"] == found["roleRef"],
        OwnedKind::Gateway => {
            let class = |gateway: &Value| gateway["spec"]["gatewayClassName"].clone();
            class(wanted_value) == class(found)
        }
        OwnedKind::TcpRoute
        | OwnedKind::UdpRoute
        | OwnedKind::EndpointSlice
        | OwnedKind::PodDisruptionBudget
        | OwnedKind::ServiceAccount
        | OwnedKind::Role
        | OwnedKind::ConfigMap => true,
    }
}
