//! Encodes in the Backend names within tables how Gateways reach the Backends.
//!
//! Tables may contain routes from several Gateways, each with its own client key and mesh. Only
//! `snapshot` looks up Backends and knows whether they use a client key or mesh. Until then, the
//! Backend name encodes both.

use sesame_proto::schema::{ExternalAuth, Forward, WeightedBackend};

/// Separator that does not occur in names.
const SEPARATOR: char = '\n';

/// The client key and the mesh with which a route's backends are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReachedBy<'a> {
    /// Name of the Gateway's client key for backends, if any.
    pub(crate) client_key: Option<&'a str>,
    /// Name of the Gateway if the route is in its mesh.
    pub(crate) mesh: Option<&'a str>,
}

impl<'a> ReachedBy<'a> {
    /// Returns a value with this client key, if any, and without a mesh.
    pub(crate) fn by_key(client_key: Option<&'a str>) -> Self {
        Self {
            client_key,
            mesh: None,
        }
    }

    /// Encodes `self` in the Backend names of a forwarding action.
    pub(super) fn forward(self, mut forward: Forward) -> Forward {
        self.record_in(&mut forward.backends);
        for mirror in &mut forward.mirrors {
            self.note(&mut mirror.backend);
        }
        forward
    }

    /// Encodes `self` in the Backend name of an authorization filter.
    pub(super) fn external_auth(self, mut auth: ExternalAuth) -> ExternalAuth {
        self.note(&mut auth.backend);
        auth
    }

    /// Encodes `self` in the Backend names of these shares.
    pub(super) fn record_in(self, shares: &mut [WeightedBackend]) {
        for share in shares {
            self.note(&mut share.backend);
        }
    }

    /// Encodes `self` in a Backend name.
    pub(crate) fn note(self, name: &mut String) {
        if name.is_empty() || self == Self::default() {
            return;
        }
        for part in [self.client_key, self.mesh] {
            name.push(SEPARATOR);
            name.push_str(part.unwrap_or_default());
        }
    }

    /// Decodes a name into the Backend's name and how to reach the Backend.
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
