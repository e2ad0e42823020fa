//! An object as it arrives: whatever it is, it can be read this far, so that no object stalls a watch.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use sesame_gateway_api::api::NamespacedName;

/// Name and version of an object, and the rest as JSON. Does not print the rest, which may be a Secret's.
#[derive(Clone)]
pub(crate) struct Incoming {
    /// Only name, namespace and resourceVersion.
    metadata: ObjectMeta,
    /// Everything but `metadata.managedFields`.
    pub(crate) value: Value,
    /// `metadata.managedFields`.
    pub(crate) managed: Option<Value>,
}

impl Incoming {
    /// Namespace and name.
    pub(crate) fn name(&self) -> NamespacedName {
        name_of(&self.metadata)
    }

    /// `metadata.resourceVersion`.
    pub(crate) fn version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }
}

pub(super) fn name_of(metadata: &ObjectMeta) -> NamespacedName {
    NamespacedName {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name(), self.version())
    }
}

impl<'de> Deserialize<'de> for Incoming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let mut metadata = ObjectMeta::default();
        let mut managed = None;
        if let Some(written) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            managed = written.remove("managedFields");
            let text = |field: &str| {
                written
                    .get(field)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            metadata.name = text("name");
            metadata.namespace = text("namespace");
            metadata.resource_version = text("resourceVersion");
        }
        Ok(Self {
            metadata,
            value,
            managed,
        })
    }
}

impl Resource for Incoming {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_arrives_is_read_as_far_as_it_goes_and_values_never_print() {
        for text in [
            r#"{"metadata": 3}"#,
            "[]",
            r#"{"metadata": {"name": ["x"]}, "spec": "no"}"#,
        ] {
            let incoming: Incoming = serde_json::from_str(text).expect("any JSON");
            assert_eq!(incoming.name(), NamespacedName::default(), "{text}");
        }
        let text = r#"{"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7",
            "managedFields": []}, "data": {"key": "hush"}}"#;
        let incoming: Incoming = serde_json::from_str(text).expect("a Secret");
        assert_eq!(format!("{incoming:?}"), "n/a@7");
        assert!(incoming.value["metadata"].get("managedFields").is_none());
    }
}
