//! Encodes the client key and mesh in Backend names.
//!
//! Gateways that share a route table may reach the same Backend differently. Backend names encode
//! the difference until `snapshot` looks up the Backends.

use sesame_proto::schema::{ExternalAuth, Forward, WeightedBackend};

/// Never occurs in Backend, key or Gateway names.
const SEPARATOR: char = '\n';

/// How a Gateway reaches a Backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReachedBy<'a> {
    /// Name of the client certificate's key.
    pub(crate) client_key: Option<&'a str>,
    /// Name of the Gateway, if it connects to the Backend through a mesh.
    pub(crate) mesh: Option<&'a str>,
}

impl<'a> ReachedBy<'a> {
    pub(crate) fn by_key(client_key: Option<&'a str>) -> Self {
        Self {
            client_key,
            mesh: None,
        }
    }

    pub(super) fn forward(self, mut forward: Forward) -> Forward {
        self.record_in(&mut forward.backends);
        for mirror in &mut forward.mirrors {
            self.append_to(&mut mirror.backend);
        }
        forward
    }

    pub(super) fn external_auth(self, mut auth: ExternalAuth) -> ExternalAuth {
        self.append_to(&mut auth.backend);
        auth
    }

    pub(super) fn record_in(self, shares: &mut [WeightedBackend]) {
        for share in shares {
            self.append_to(&mut share.backend);
        }
    }

    pub(crate) fn append_to(self, name: &mut String) {
        if name.is_empty() || self == Self::default() {
            return;
        }
        for part in [self.client_key, self.mesh] {
            name.push(SEPARATOR);
            name.push_str(part.unwrap_or_default());
        }
    }

    pub(crate) fn split(encoded: &'a str) -> (&'a str, Self) {
        let mut parts = encoded.split(SEPARATOR);
        let name = parts.next().unwrap_or_default();
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let reached_by = Self {
            client_key: part(),
            mesh: part(),
        };
        (name, reached_by)
    }
}
