//! What is kept of an object, made as it arrives: whoever can write objects decides how large they are, so no two whole ones
//! are in memory.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::{Deserialize, Deserializer};

use super::Incoming;
use sesame_gateway_api::api::NamespacedName;

/// How many objects a page of a list holds: each may be as large as the API server allows.
pub(crate) const PAGE: u32 = 16;

/// Takes of an object what is worth keeping.
pub(crate) trait Keep: Clone {
    fn keep(incoming: Incoming) -> Self;
}

/// Name and version of an object, and what is kept of it.
#[derive(Clone)]
pub(crate) struct Kept<T> {
    metadata: ObjectMeta,
    pub(crate) kept: T,
}

impl<T> Kept<T> {
    /// Namespace and name.
    pub(crate) fn name(&self) -> NamespacedName {
        super::incoming::name_of(&self.metadata)
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl<'de, T: Keep> Deserialize<'de> for Kept<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let incoming = Incoming::deserialize(deserializer)?;
        Ok(Self {
            metadata: incoming.meta().clone(),
            kept: T::keep(incoming),
        })
    }
}

impl<T> Resource for Kept<T> {
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
