//! Validates the kind, permission and name of references.

use super::grants::{Grants, Referent, Referrer};
use crate::syntax::names;
use sesame_kinds::api::{BackendObjectRef, BackendRef, ObjectRef};
use sesame_kinds::status::{Grounds, Reason};

#[derive(Clone, Copy)]
pub(crate) struct CoreReference<'w> {
    group: Option<&'w str>,
    kind: Option<&'w str>,
    namespace: Option<&'w str>,
    name: &'w str,
}

impl<'w> CoreReference<'w> {
    pub(crate) fn of_kind(kind: &'w str, namespace: Option<&'w str>, name: &'w str) -> Self {
        Self {
            group: None,
            kind: Some(kind),
            namespace,
            name,
        }
    }
}

impl<'w> From<&'w ObjectRef> for CoreReference<'w> {
    fn from(reference: &'w ObjectRef) -> Self {
        let ObjectRef {
            group,
            kind,
            name,
            namespace,
        } = reference;
        Self {
            group: group.as_deref(),
            kind: kind.as_deref(),
            namespace: namespace.as_deref(),
            name,
        }
    }
}

impl<'w> From<&'w BackendRef> for CoreReference<'w> {
    fn from(reference: &'w BackendRef) -> Self {
        let BackendRef {
            group,
            kind,
            name,
            namespace,
            // Looked up by the caller.
            port: _,
            // Read by the caller.
            weight: _,
            filters: _,
        } = reference;
        Self {
            group: group.as_deref(),
            kind: kind.as_deref(),
            namespace: namespace.as_deref(),
            name,
        }
    }
}

impl<'w> From<&'w BackendObjectRef> for CoreReference<'w> {
    fn from(reference: &'w BackendObjectRef) -> Self {
        let BackendObjectRef {
            group,
            kind,
            name,
            namespace,
            // Looked up by the caller.
            port: _,
        } = reference;
        Self {
            group: group.as_deref(),
            kind: kind.as_deref(),
            namespace: namespace.as_deref(),
            name,
        }
    }
}

pub(crate) struct Expected {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) default: &'static str,
    pub(crate) wrong_kind: Reason,
    pub(crate) wrong_name: Reason,
}

impl Expected {
    pub(crate) fn is_named_by(&self, reference: CoreReference<'_>) -> bool {
        reference.group.unwrap_or_default() == self.group
            && reference.kind.unwrap_or(self.default) == self.kind
    }

    pub(crate) fn find<'w>(
        &self,
        reference: CoreReference<'w>,
        referrer: Referrer<'w>,
        grants: &Grants<'_>,
    ) -> Result<(&'w str, &'w str), Grounds> {
        let CoreReference {
            group,
            kind,
            namespace,
            name,
        } = reference;
        let group = group.unwrap_or_default();
        let kind = kind.unwrap_or(self.default);
        if group != self.group || kind != self.kind {
            let message = format!(
                "{} {name:?} is not supported; expected a {} of the core group",
                names::group_kind(group, kind),
                self.kind
            );
            return Err((self.wrong_kind, message));
        }
        let namespace = namespace.unwrap_or(referrer.namespace);
        let target = Referent {
            group,
            kind,
            namespace,
            name,
        };
        grants
            .check(referrer, target)
            .map_err(|why| (Reason::RefNotPermitted, why))?;
        names::check_object(namespace, name).map_err(|why| (self.wrong_name, why))?;
        Ok((namespace, name))
    }
}
