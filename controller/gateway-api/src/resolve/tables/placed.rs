//! Listeners that the same Envoys serve, and the hostnames that divide a port's requests among
//! them.

use std::collections::HashSet;

use sesame_proto::schema;

use super::reached_by::ReachedBy;
use crate::resolve::listeners::CheckedListener;
use crate::resolve::routes::attachments::Attachment;
use crate::resolve::syntax::hostnames::Hostname;

/// A served listener, and the data from which its tables are built.
pub(crate) struct PlacedListener<'a> {
    pub(crate) listener: &'a CheckedListener<'a>,
    /// Name of the Gateway's client key for backends.
    pub(crate) client_key: Option<&'a str>,
    pub(crate) attachments: &'a [Attachment<'a>],
    pub(crate) protocol: schema::Protocol,
    pub(crate) port: u16,
    pub(crate) hostname: &'a Hostname,
}

impl PlacedListener<'_> {
    /// Returns the name of the listener's route table, or an empty string if it has none.
    pub(crate) fn route_table(&self) -> String {
        match self.protocol {
            schema::Protocol::Http => http_table(self.port),
            schema::Protocol::Https => format!("https/{}/{}", self.port, self.listener.provenance),
            schema::Protocol::Tls | schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
                String::new()
            }
        }
    }

    /// Returns how the Gateway reaches the backends of the route at this index.
    pub(crate) fn reached_by(&self, route: usize) -> ReachedBy<'_> {
        let attachments = self.attachments;
        let found = attachments.binary_search_by_key(&route, |attachment| attachment.route);
        let attachment = found.ok().and_then(|place| attachments.get(place));
        ReachedBy {
            client_key: self.client_key,
            mesh: attachment.and_then(|attachment| attachment.mesh),
        }
    }

    /// Returns the authorization filters. Their Backend names encode how the Backends are reached.
    pub(crate) fn external_auth(&self) -> Vec<schema::ExternalAuth> {
        let reached_by = ReachedBy {
            client_key: self.client_key,
            mesh: None,
        };
        let all = self.listener.filters.external_auth.iter().cloned();
        all.map(|auth| reached_by.external_auth(auth)).collect()
    }

    /// Returns the URL scheme of requests to the listener.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.protocol == schema::Protocol::Https {
            "https"
        } else {
            "http"
        }
    }
}

/// Returns the name of the route table that all HTTP listeners on a port share.
pub(crate) fn http_table(port: u16) -> String {
    format!("http/{port}")
}

/// The hostnames that divide a port's requests among its listeners.
pub(crate) struct HostnameOwners<'a>(HashSet<&'a str>);

impl<'a> HostnameOwners<'a> {
    pub(crate) fn new(listeners: &[&PlacedListener<'a>]) -> Self {
        Self(
            listeners
                .iter()
                .map(|listener| listener.hostname.key())
                .collect(),
        )
    }

    /// Returns true if the host belongs to a listener other than `listener`.
    pub(crate) fn has_another(&self, listener: &Hostname, host: &Hostname) -> bool {
        let mut keys = host.covering_keys();
        let owner = keys.find(|key| self.0.contains(key));
        owner.is_some_and(|owner| owner != listener.key())
    }

    /// Returns true if `listener` receives all hosts in `domain`, except those that more specific
    /// listeners cover.
    pub(crate) fn owns(&self, listener: &Hostname, domain: &Hostname) -> bool {
        // A single listener owns every domain that it covers.
        self.0.len() == 1
            || domain.covering_keys().find(|key| self.0.contains(key)) == Some(listener.key())
    }
}
