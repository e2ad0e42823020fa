//! Reads and marks the objects of orders.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use sesame_acme::{ACME_KEY, DIGEST_ANNOTATION, DIRECTORY_ANNOTATION, IssuedPair, issued_digest};
use sesame_acme_client::ProbeError;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;

use super::ClusterHost;
use crate::connection::answer;
use crate::watch::api_resource;

/// Sesame controllers with another name ignore the object.
pub(super) const CONTROLLER_ANNOTATION: &str = "projectsesame.io/controller";
pub(super) const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const TIMEOUT: Duration = Duration::from_secs(10);

impl ClusterHost {
    /// Deletes challenges of earlier leaders. A tenant can create an object with the label in a
    /// namespace where the controller may not delete it. This must not stop other orders.
    pub(super) async fn clear_kind(&self, kind: Kind) {
        let version = kind.api_versions().first().copied().unwrap_or_default();
        let resource = api_resource(kind, version);
        let client = || self.replica.client.clone();
        let apis: Vec<Api<DynamicObject>> = self.replica.watched.each(
            || Api::all_with(client(), &resource),
            |namespace| Api::namespaced_with(client(), namespace, &resource),
        );
        let listed = ListParams::default().labels(&format!("{ACME_KEY}=challenge"));
        for api in apis {
            let all = match answer(TIMEOUT, api.list(&listed)).await {
                Ok(all) => all,
                Err(error) => {
                    tracing::warn!(%kind, %error, "cannot list earlier ACME challenges");
                    continue;
                }
            };
            for object in all {
                let namespace = object.namespace().unwrap_or_default();
                let name = NamespacedName::new(&namespace, &object.name_any());
                if let Err(error) = self.delete(kind, &name).await {
                    tracing::warn!(%kind, %name, error, "cannot remove an earlier ACME challenge");
                }
            }
        }
    }

    /// Leaves other controllers' objects alone.
    pub(super) async fn delete(&self, kind: Kind, name: &NamespacedName) -> Result<(), String> {
        let api = self.dynamic(kind, &name.namespace);
        let found = answer(TIMEOUT, api.get_opt(&name.name)).await;
        let found = found.map_err(|error| error.to_string())?;
        let controller = &self.replica.controller_name;
        let Some(found) = found.filter(|found| is_ours(&found.metadata, controller)) else {
            return Ok(());
        };
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        self.wrote(kind, "delete");
        match answer(TIMEOUT, api.delete(&name.name, &parameters)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                let what = format!("delete {}", kind.plural());
                Err(explained(&what, &name.namespace, &error))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// The label alone is not enough, because users may copy a Secret with its labels.
pub(super) fn is_ours(metadata: &ObjectMeta, controller: &str) -> bool {
    let annotations = metadata.annotations.as_ref();
    let written_by = annotations.and_then(|all| all.get(CONTROLLER_ANNOTATION));
    let labels = metadata.labels.as_ref();
    labels.is_some_and(|all| all.contains_key(ACME_KEY))
        && written_by.is_some_and(|name| name == controller)
}

/// Labels and annotations survive edits of the data, so the digest must match, too.
pub(super) fn is_issued(secret: &Secret, name: &NamespacedName, controller: &str) -> bool {
    let chain = secret.data.as_ref().and_then(|data| data.get(CERTIFICATE));
    let digest = chain.map(|chain| issued_digest(name, &chain.0));
    is_ours(&secret.metadata, controller)
        && digest.is_some_and(|digest| secret.annotations().get(DIGEST_ANNOTATION) == Some(&digest))
}

/// Content of an issued Secret.
pub(super) struct Written<'a> {
    pub(super) name: &'a NamespacedName,
    pub(super) pair: &'a IssuedPair,
    pub(super) directory: &'a str,
    pub(super) controller: &'a str,
}

impl Written<'_> {
    /// Keeps other metadata, which tools may need. The Secret outlives its Gateways: after one is
    /// replaced, the CA's limits may not permit another order.
    pub(super) fn secret(self, before: Option<&Secret>) -> Secret {
        let Self {
            name,
            pair: IssuedPair { chain, key },
            directory,
            controller,
        } = self;
        let mut labels = before.map_or_else(BTreeMap::new, |it| it.labels().clone());
        labels.insert(ACME_KEY.to_owned(), "certificate".to_owned());
        let mut annotations = before.map_or_else(BTreeMap::new, |it| it.annotations().clone());
        let digest = issued_digest(name, chain.as_bytes());
        let ours = [
            (CONTROLLER_ANNOTATION, controller),
            (DIRECTORY_ANNOTATION, directory),
            (DIGEST_ANNOTATION, &digest),
        ];
        annotations.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let data = [(CERTIFICATE, chain), (KEY, key)];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret {
            metadata: ObjectMeta {
                name: Some(name.name.clone()),
                namespace: Some(name.namespace.clone()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: before.and_then(|it| it.metadata.owner_references.clone()),
                finalizers: before.and_then(|it| it.metadata.finalizers.clone()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from(data)),
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        }
    }
}

/// A challenge's objects disappear with the last of their owners.
pub(super) fn owner(kind: Kind, object: &DynamicObject) -> OwnerReference {
    let version = kind.api_versions().first().copied().unwrap_or_default();
    OwnerReference {
        api_version: version.to_owned(),
        kind: kind.as_str().to_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Returns a Gateway's addresses from its status. Hostnames of load balancers are left out.
pub(super) fn addresses(gateway: &Value) -> Vec<IpAddr> {
    let addresses = gateway
        .pointer("/status/addresses")
        .and_then(Value::as_array);
    let values = addresses
        .into_iter()
        .flatten()
        .filter_map(|it| it.get("value")?.as_str());
    values.filter_map(|value| value.parse().ok()).collect()
}

/// Returns why a Gateway with addresses cannot be probed. Only the CA can reach a load
/// balancer's hostname.
pub(super) fn unprobed(gateway: &Value) -> Option<ProbeError> {
    let stated = gateway
        .pointer("/status/addresses")
        .and_then(Value::as_array);
    let has_addresses = stated.is_some_and(|stated| !stated.is_empty());
    (has_addresses && addresses(gateway).is_empty()).then(|| ProbeError {
        message: "the Gateway's address is a hostname".to_owned(),
        is_response: false,
    })
}

/// Returns true if this controller has accepted the route for at least one parent.
pub(super) fn is_accepted(route: &Value, controller: &str) -> bool {
    let parents = route.pointer("/status/parents").and_then(Value::as_array);
    let ours = parents.into_iter().flatten();
    let mut ours = ours.filter(|parent| parent["controllerName"] == *controller);
    ours.any(|parent| {
        let conditions = parent["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Accepted" && it["status"] == "True")
    })
}

pub(super) fn explained(what: &str, namespace: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "the controller may not {what} in namespace {namespace:?}; bind the ClusterRole in \
             controller/deploy/acme.yaml there, or add the namespace to controller.acmeNamespaces \
             of the Helm chart"
        ),
        error => format!("cannot {what} in namespace {namespace:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_marked_objects_of_controller_are_ours() {
        let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let mut metadata = ObjectMeta {
            labels: Some(pair(ACME_KEY, "certificate")),
            ..ObjectMeta::default()
        };
        assert!(!is_ours(&metadata, "example.com/a"));
        metadata.annotations = Some(pair(CONTROLLER_ANNOTATION, "example.com/a"));
        assert!(is_ours(&metadata, "example.com/a"));
        assert!(!is_ours(&metadata, "example.com/b"));
        metadata.labels = None;
        assert!(!is_ours(&metadata, "example.com/a"));
    }

    #[test]
    fn edited_and_copied_secrets_are_foreign() {
        let name = NamespacedName::new("shop", "tls");
        let write = |before: Option<&Secret>| {
            let written = Written {
                name: &name,
                pair: &IssuedPair {
                    chain: "chain".to_owned(),
                    key: "key".to_owned(),
                },
                directory: "https://ca.test",
                controller: "example.com/a",
            };
            written.secret(before)
        };
        let mut secret = write(None);
        assert!(is_issued(&secret, &name, "example.com/a"));
        assert!(!is_issued(&secret, &name, "example.com/b"));
        let copied = NamespacedName::new("shop", "copy");
        assert!(!is_issued(&secret, &copied, "example.com/a"));
        secret.labels_mut().insert("team".into(), "web".into());
        secret.annotations_mut().insert("note".into(), "x".into());
        let again = write(Some(&secret));
        assert!(is_issued(&again, &name, "example.com/a"));
        assert_eq!(again.labels(), secret.labels());
        assert_eq!(again.annotations(), secret.annotations());
        let edited = ByteString(b"other".to_vec());
        let data = secret.data.as_mut().unwrap();
        data.insert(CERTIFICATE.to_owned(), edited);
        assert!(!is_issued(&secret, &name, "example.com/a"));
        secret.data = None;
        assert!(!is_issued(&secret, &name, "example.com/a"));
    }

    #[test]
    fn gateways_with_only_hostnames_are_unprobed() {
        let gateway = |addresses: Value| json!({"status": {"addresses": addresses}});
        let hostname = json!({"type": "Hostname", "value": "lb.test"});
        let address = json!({"type": "IPAddress", "value": "192.0.2.1"});
        let error = unprobed(&gateway(json!([hostname]))).unwrap();
        assert!(!error.is_response);
        assert_eq!(unprobed(&gateway(json!([hostname, address]))), None);
        assert_eq!(unprobed(&gateway(json!([]))), None);
        assert_eq!(unprobed(&json!({})), None);
    }

    #[test]
    fn statuses_are_read_leniently() {
        let route = |name: &str, status: &str| {
            let conditions = json!([{"type": "Accepted", "status": status}]);
            json!({"status": {"parents": [{"controllerName": name, "conditions": conditions}]}})
        };
        assert!(is_accepted(&route("a/b", "True"), "a/b"));
        assert!(!is_accepted(&route("a/b", "False"), "a/b"));
        assert!(!is_accepted(&route("a/c", "True"), "a/b"));
        assert!(!is_accepted(&json!({}), "a/b"));
        let gateway = json!({"status": {"addresses": [
            {"type": "IPAddress", "value": "192.0.2.1"}, {"type": "Hostname", "value": "lb.test"},
        ]}});
        assert_eq!(addresses(&gateway), [IpAddr::from([192, 0, 2, 1])]);
    }
}
