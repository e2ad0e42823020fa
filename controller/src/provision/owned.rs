//! Builds objects for a Gateway, and determines who owns existing ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_proto::digest::sha256;

use super::Basis;
use super::kept::record_written;
use super::kinds::{OwnedKey, OwnedKind};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{GATEWAY_ANNOTATION, GATEWAY_LABEL, PUBLISHER, gateway_id};

/// Defined by the Gateway API.
const NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
const CLASS_LABEL: &str = "gateway.networking.k8s.io/gateway-class-name";
/// Digest of all fields that Sesame writes, to detect fields that it no longer writes.
pub(super) const DIGEST_ANNOTATION: &str = "projectsesame.io/digest";
/// Replaces the owner reference for objects in other namespaces.
pub(super) const OWNER_ANNOTATION: &str = "projectsesame.io/owner-uid";
/// Prefix that no UID has.
const IMPLIED: &str = "implied-";
/// Controllers with another name ignore the object, regardless of the Gateway's class.
pub(super) const CONTROLLER_ANNOTATION: &str = "projectsesame.io/controller";
/// Maximum length of Service names and label values.
const MAX_LABEL: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedObject {
    pub(super) gateway: NamespacedName,
    pub(super) key: OwnedKey,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExistingObject {
    pub(super) version: String,
    pub(super) value: Value,
    pub(super) owner: Option<String>,
}

impl ExistingObject {
    pub(super) fn new(
        kind: OwnedKind,
        version: &str,
        value: Value,
        managed: Option<&Value>,
    ) -> Self {
        let owner = if kind.is_remote() {
            remote_owner(&value, managed)
        } else {
            let implied = || remote_owner(&value, managed).filter(|uid| is_implied(uid));
            owner_reference(&value).or_else(implied)
        };
        Self {
            version: version.to_owned(),
            owner: owner.map(str::to_owned),
            value,
        }
    }

    pub(super) fn is_owned_by(&self, basis: &Basis) -> bool {
        let owner = self.owner.as_deref();
        // A new Gateway object takes over the objects of the implied Gateway.
        owner.is_some_and(|uid| {
            uid == basis.uid || is_implied(uid) && uid == implied_uid(&basis.gateway)
        })
    }
}

/// Stands in for the UID of a Gateway that only the configuration declares.
pub(super) fn implied_uid(gateway: &NamespacedName) -> String {
    format!("{IMPLIED}{}", gateway_id(gateway))
}

pub(super) fn is_implied(uid: &str) -> bool {
    uid.starts_with(IMPLIED)
}

/// Only an owner reference makes an object ours. Labels can be copied, and users can choose any
/// name.
fn owner_reference(value: &Value) -> Option<&str> {
    let all = value.pointer("/metadata/ownerReferences")?.as_array()?;
    let ours = all.iter().find(|reference| is_gateway(reference));
    ours?["uid"].as_str()
}

pub(super) fn is_gateway(reference: &Value) -> bool {
    let group = reference["apiVersion"].as_str().unwrap_or_default();
    group.starts_with("gateway.networking.k8s.io/")
        && (reference["kind"] == "Gateway" || reference["kind"] == "GatewayClass")
        && reference["controller"] == true
}

/// Returns the annotated owner, if this controller wrote the annotation. In a copied object,
/// another field manager owns the annotation.
fn remote_owner<'v>(value: &'v Value, managed: Option<&Value>) -> Option<&'v str> {
    let managers = managed.and_then(Value::as_array);
    let wrote = managers.into_iter().flatten();
    let ours = wrote.into_iter().any(|entry| entry["manager"] == PUBLISHER);
    let uid = value["metadata"]["annotations"][OWNER_ANNOTATION].as_str();
    uid.filter(|_| ours)
}

/// Our labels override labels in `spec.infrastructure`.
pub(super) fn labels(basis: &Basis, own: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut all = basis.labels.clone();
    let own = own.iter();
    all.extend(own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let label = if basis.is_class {
        CLASS_LABEL
    } else {
        NAME_LABEL
    };
    all.insert(label.to_owned(), name_label(&basis.gateway));
    all.insert(GATEWAY_LABEL.to_owned(), gateway_id(&basis.gateway));
    all
}

/// Uses the controller's namespace if a GatewayClass owns the object, and otherwise the Gateway's.
pub(super) fn local_object(
    basis: &Basis,
    kind: OwnedKind,
    name: &str,
    own: &[(&str, &str)],
    mut value: Value,
) -> OwnedObject {
    let Basis {
        gateway,
        is_class,
        uid,
        created: _,
        class: _,
        leads_to: _,
        labels: _,
        annotations,
        adopt: _,
        request: _,
        hosts: _,
    } = basis;
    value["apiVersion"] = json!(kind.api_version());
    value["kind"] = json!(kind.as_str());
    value["metadata"] = json!({
        "name": name,
        "namespace": gateway.namespace,
        "labels": labels(basis, own),
        "annotations": annotations,
    });
    if is_implied(uid) {
        value["metadata"]["annotations"][OWNER_ANNOTATION] = json!(uid);
    } else {
        value["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": if *is_class { "GatewayClass" } else { "Gateway" },
            "name": gateway.name,
            "uid": uid,
            "controller": true,
        }]);
    }
    OwnedObject {
        gateway: gateway.clone(),
        key: (kind, NamespacedName::new(&gateway.namespace, name)),
        value,
    }
}

/// Stores the Gateway's UID in an annotation.
pub(super) fn remote_object(
    basis: &Basis,
    kind: OwnedKind,
    name: &NamespacedName,
    mut value: Value,
) -> OwnedObject {
    value["apiVersion"] = json!(kind.api_version());
    value["kind"] = json!(kind.as_str());
    value["metadata"] = json!({
        "name": name.name,
        "namespace": name.namespace,
        "labels": labels(basis, &[]),
        "annotations": {
            OWNER_ANNOTATION: basis.uid,
            GATEWAY_ANNOTATION: basis.gateway.to_string(),
        },
    });
    OwnedObject {
        gateway: basis.gateway.clone(),
        key: (kind, name.clone()),
        value,
    }
}

pub(super) fn with_controller(mut object: OwnedObject, controller: &str) -> OwnedObject {
    object.value["metadata"]["annotations"][CONTROLLER_ANNOTATION] = json!(controller);
    object
}

/// Returns an empty string if the annotation is missing.
pub(super) fn controller_of(object: &Value) -> &str {
    let name = &object["metadata"]["annotations"][CONTROLLER_ANNOTATION];
    name.as_str().unwrap_or_default()
}

/// Adds a digest of all fields that Sesame writes to the object.
pub(super) fn stamped(mut object: OwnedObject) -> OwnedObject {
    record_written(&mut object.value);
    let digest = sha256(object.value.to_string().as_bytes());
    object.value["metadata"]["annotations"][DIGEST_ANNOTATION] = json!(digest);
    object
}

/// Returns `<gateway>-<class>` as the Gateway API recommends, `gateways-<class>` for a class, or
/// `gateway-` and a digest.
pub(super) fn service_name(basis: &Basis) -> String {
    name_up_to(basis, MAX_LABEL)
}

/// Leaves room for `more` characters.
pub(super) fn beginning_of_names(basis: &Basis, more: usize) -> String {
    name_up_to(basis, MAX_LABEL - more)
}

fn name_up_to(basis: &Basis, longest: usize) -> String {
    let of = if basis.is_class {
        "gateways"
    } else {
        basis.gateway.name.as_str()
    };
    let name = format!("{of}-{}", basis.class);
    let good = name.len() <= longest
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.contains('.');
    if good {
        name
    } else {
        format!("gateway-{}", gateway_id(&basis.gateway))
    }
}

fn name_label(gateway: &NamespacedName) -> String {
    if gateway.name.len() <= MAX_LABEL {
        gateway.name.clone()
    } else {
        gateway_id(gateway)
    }
}
