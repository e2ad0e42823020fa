//! How Gateways reach Backends, noted in the names within tables.
//!
//! Tables may hold routes of several Gateways, each with its own key and mesh. Whether a Backend
//! uses them is known only in `snapshot`, where Backends are looked up; until then the name carries
//! the note.

use sesame_proto::schema::{ExternalAuth, Forward, WeightedBackend};

/// Separator that does not occur in names.
const SEPARATOR: char = '\n';

/// How to reach the backends of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReachedBy<'a> {
    /// Name of the Gateway's client key for backends, if any.
    pub(crate) client_key: Option<&'a str>,
    /// Name of the Gateway, if the route is meshed there.
    pub(crate) mesh: Option<&'a str>,
}

impl<'a> ReachedBy<'a> {
    /// Returns the note for a Gateway with this client key, if any, and without a mesh.
    pub(crate) fn by_key(client_key: Option<&'a str>) -> Self {
        Self {
            client_key,
            mesh: None,
        }
    }

    /// Notes it in the names of the Backends of a route.
    pub(super) fn forward(self, mut forward: Forward) -> Forward {
        self.note_in(&mut forward.backends);
        for mirror in &mut forward.mirrors {
            self.note(&mut mirror.backend);
        }
        forward
    }

    /// Notes it in the name of the Backend of an authorization.
    pub(super) fn external_auth(self, mut auth: ExternalAuth) -> ExternalAuth {
        self.note(&mut auth.backend);
        auth
    }

    /// Notes it in the names of these Backends.
    pub(super) fn note_in(self, shares: &mut [WeightedBackend]) {
        for share in shares {
            self.note(&mut share.backend);
        }
    }

    /// Notes it in the name of a Backend.
    pub(crate) fn note(self, name: &mut String) {
        if name.is_empty() || self == Self::default() {
            return;
        }
        for part in [self.client_key, self.mesh] {
            name.push(SEPARATOR);
            name.push_str(part.unwrap_or_default());
        }
    }

    /// Returns the name of the Backend, and how to reach it.
    pub(crate) fn split(noted: &'a str) -> (&'a str, Self) {
        let mut parts = noted.split(SEPARATOR);
        let name = parts.next().unwrap_or_default();
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let reached_by = Self {
            client_key: part(),
            mesh: part(),
        };
        (name, reached_by)
    }
}
