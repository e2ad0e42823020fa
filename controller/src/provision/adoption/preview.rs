//! Publishes the intended objects of a fleet in a ConfigMap. The ConfigMap omits existing objects,
//! so permission to read it does not reveal them.

use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{AdoptionAction, action, consent};
use crate::provision::Basis;
use crate::provision::cache::existing;
use crate::provision::kinds::OwnedKind;
use crate::provision::owned::{OWNER_ANNOTATION, OwnedObject, stamped};
use crate::watch::Received;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{ADOPTION_LABEL, GATEWAY_ANNOTATION, adoption_name, gateway_id};

const ENTRY: &str = "fleet.json";
const MAX_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdoptionPreview {
    uid: String,
    consent: Option<String>,
    objects: Vec<OwnedObject>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    gateway: String,
    uid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<String>,
    objects: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectAction {
    pub(crate) kind: &'static str,
    pub(crate) name: NamespacedName,
    pub(crate) action: AdoptionAction,
}

pub(super) fn config_map(
    basis: &Basis,
    namespace: &str,
    objects: &[OwnedObject],
    consent: Option<String>,
) -> OwnedObject {
    let gateway = basis.gateway.to_string();
    let written = Written {
        gateway: gateway.clone(),
        uid: basis.uid.clone(),
        consent,
        objects: objects.iter().map(|object| object.value.clone()).collect(),
    };
    let name = NamespacedName::new(namespace, &adoption_name(&basis.gateway));
    let kind = OwnedKind::ConfigMap;
    let value = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "labels": {ADOPTION_LABEL: gateway_id(&basis.gateway)},
            "annotations": {OWNER_ANNOTATION: basis.uid, GATEWAY_ANNOTATION: gateway},
        },
        "data": {ENTRY: json!(written).to_string()},
    });
    stamped(OwnedObject {
        gateway: basis.gateway.clone(),
        key: (kind, name),
        value,
    })
}

impl AdoptionPreview {
    pub(crate) fn parse(config_map: &Value, gateway: &NamespacedName) -> Result<Self, String> {
        let text = config_map["data"][ENTRY].as_str().unwrap_or_default();
        if text.len() > MAX_BYTES {
            return Err(format!("{ENTRY} has more than {MAX_BYTES} bytes"));
        }
        let written: Written =
            serde_json::from_str(text).map_err(|error| format!("{ENTRY}: {error}"))?;
        if written.gateway != gateway.to_string() {
            return Err(format!("it belongs to Gateway {:?}", written.gateway));
        }
        let objects = written.objects.into_iter().map(|value| {
            let kind = value["kind"].as_str().unwrap_or_default();
            let mut kinds = OwnedKind::ALL.into_iter();
            let known = kinds.find(|known| known.as_str() == kind && known.is_of_fleet());
            let known = known.ok_or_else(|| {
                format!("{ENTRY} contains an object of unsupported kind {kind:?}")
            })?;
            let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
            Ok(OwnedObject {
                gateway: gateway.clone(),
                key: (known, NamespacedName::new(text("namespace"), text("name"))),
                value,
            })
        });
        Ok(Self {
            uid: written.uid,
            consent: written.consent,
            objects: objects.collect::<Result<_, String>>()?,
        })
    }

    /// Returns the objects to read, in the order that [`Self::compare`] expects.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (ApiResource, &NamespacedName)> {
        let keys = self.objects.iter().map(|object| &object.key);
        keys.map(|(kind, name)| (kind.resource(), name))
    }

    /// Also returns the agreement, or `None` if an object is foreign or there is nothing to adopt.
    /// `found` has the order of [`Self::reads`].
    pub(crate) fn compare(
        &self,
        found: &[Option<Received>],
    ) -> (Vec<ObjectAction>, Option<String>) {
        let all = self.objects.iter().zip(found);
        let actions = all.map(|(object, found)| {
            let (kind, name) = &object.key;
            let found = found.as_ref().map(|found| existing(*kind, found));
            ObjectAction {
                kind: kind.as_str(),
                name: name.clone(),
                action: action(object, found.as_ref(), &self.uid),
            }
        });
        let actions: Vec<ObjectAction> = actions.collect();
        let bare: Vec<AdoptionAction> = actions.iter().map(|of| of.action.clone()).collect();
        let agreement = consent(&bare);
        (actions, agreement)
    }

    pub(crate) fn is_current(&self, agreement: Option<&str>) -> bool {
        self.consent.as_deref() == agreement
    }
}
