//! Session persistence configured on a backend. Rules do not share sessions.

use super::{BackendEntry, BackendName, Backends, Source};
use sesame_kinds::api::{Metadata, SessionPersistence};
use sesame_kinds::world::{Kind, ObjectKey};

pub(crate) struct BackendSession<'w> {
    pub(crate) target: ObjectKey,
    /// The backend or policy that configures the sessions.
    pub(crate) asked_by: ObjectKey,
    pub(crate) spec: &'w SessionPersistence,
}

fn name_of(metadata: &Metadata) -> BackendName<'_> {
    (metadata.namespace.as_str(), metadata.name.as_str())
}

impl<'w> Backends<'w> {
    /// An XBackend's own field takes precedence over a policy.
    pub(crate) fn session_of(&self, name: &str) -> Option<BackendSession<'w>> {
        let BackendEntry { source, .. } = self.entry(name)?;
        let (kind, metadata) = match source {
            Source::Service(metadata, _) => (Kind::Service, *metadata),
            Source::XBackend(metadata) => (Kind::XBackend, *metadata),
            // Calls to authorization services have no sessions.
            Source::Extension(_) => return None,
        };
        let target = kind.named(metadata.key());
        if let Source::XBackend(metadata) = source
            && let Some(found) = self.checked.x_backends.get(name_of(metadata))
            && let Some(spec) = &found.object.spec.session_persistence
        {
            return Some(BackendSession {
                asked_by: target.clone(),
                target,
                spec,
            });
        }
        let policies = &self.checked.traffic_policies;
        let policy = policies.for_sessions(kind, name_of(metadata))?;
        Some(BackendSession {
            target,
            asked_by: Kind::XBackendTrafficPolicy.named(policy.metadata.key()),
            spec: policy.spec.session_persistence.as_ref()?,
        })
    }
}
