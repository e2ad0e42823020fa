//! Encodes in Backend names how a Gateway reaches the Backend.
//!
//! A table may contain routes from several Gateways, each with its own client key and mesh. Only
//! `snapshot` looks up the Backends and finds out whether they use a client key or mesh. Until
//! then, the Backend's name encodes the key and the mesh.

use sesame_proto::schema::{ExternalAuth, Forward, WeightedBackend};

/// A separator that cannot occur in names.
const SEPARATOR: char = '\n';

/// The client key and mesh with which a Gateway reaches a Backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReachedBy<'a> {
    /// Name of the key for the Gateway's client certificate, if any.
    pub(crate) client_key: Option<&'a str>,
    /// Name of the Gateway, if it reaches the Backend through a mesh.
    pub(crate) mesh: Option<&'a str>,
}

impl<'a> ReachedBy<'a> {
    /// Creates a value without a mesh.
    pub(crate) fn by_key(client_key: Option<&'a str>) -> Self {
        Self {
            client_key,
            mesh: None,
        }
    }

    /// Encodes `self` in all Backend names of a forwarding action.
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

    /// Encodes `self` in the Backend names of weighted backends.
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

    /// Splits an encoded name into the Backend's name and how to reach the Backend.
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
