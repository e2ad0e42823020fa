//! Defines the generic form of received objects. Every object can be parsed into this form, so no
//! object stalls a watch. Objects are reduced on arrival, because users control their size.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::merged::FromName;
use sesame_kinds::api::NamespacedName;

/// Number of objects per page of a list, small because objects can be as large as the API server
/// allows.
pub(crate) const PAGE: u32 = 16;

/// `Debug` omits the content, because the object may be a Secret.
#[derive(Clone)]
pub(crate) struct Received<T = Json> {
    /// Only name, namespace and resourceVersion.
    metadata: ObjectMeta,
    pub(crate) kept: T,
}

pub(crate) trait Keep: Clone {
    fn keep(name: &NamespacedName, json: Json) -> Self;
}

#[derive(Clone)]
pub(crate) struct Json {
    /// Without `metadata.managedFields`.
    pub(crate) value: Value,
    pub(crate) managed: Option<Value>,
}

impl Keep for Json {
    fn keep(_: &NamespacedName, json: Json) -> Self {
        json
    }
}

impl<T> Received<T> {
    pub(crate) fn name(&self) -> NamespacedName {
        NamespacedName {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }
}

impl Received {
    /// Without `metadata.managedFields`.
    pub(crate) fn value(&self) -> &Value {
        &self.kept.value
    }

    pub(crate) fn text(&self, pointer: &str) -> Option<String> {
        Some(self.value().pointer(pointer)?.as_str()?.to_owned())
    }

    pub(crate) fn texts(&self, pointer: &str) -> BTreeMap<String, String> {
        let map = self.value().pointer(pointer).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    }

    pub(crate) fn is_deleted(&self) -> bool {
        let time = self.value().pointer("/metadata/deletionTimestamp");
        time.is_some()
    }
}

impl<T> fmt::Debug for Received<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name(), self.version())
    }
}

impl<'de, T: Keep> Deserialize<'de> for Received<T> {
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
        let bare = Received { metadata, kept: () };
        Ok(Self {
            kept: T::keep(&bare.name(), Json { value, managed }),
            metadata: bare.metadata,
        })
    }
}

impl<T: Keep> FromName for Received<T> {
    fn from_name(metadata: ObjectMeta) -> Self {
        let bare = Received { metadata, kept: () };
        let json = Json {
            value: Value::Null,
            managed: None,
        };
        Self {
            kept: T::keep(&bare.name(), json),
            metadata: bare.metadata,
        }
    }
}

impl<T> Resource for Received<T> {
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
    fn any_json_is_read_and_values_never_print() {
        for text in [
            r#"{"metadata": 3}"#,
            "[]",
            r#"{"metadata": {"name": ["x"]}, "spec": "no"}"#,
        ] {
            let received: Received = serde_json::from_str(text).expect("any JSON");
            assert_eq!(received.name(), NamespacedName::default(), "{text}");
        }
        let text = r#"{"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7",
            "managedFields": []}, "data": {"key": "hush"}}"#;
        let received: Received = serde_json::from_str(text).expect("a Secret");
        assert_eq!(format!("{received:?}"), "n/a@7");
        assert!(received.value()["metadata"].get("managedFields").is_none());
    }
}
