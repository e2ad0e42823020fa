//! Listeners that the same Envoys serve, and how the requests to a port are divided among them by
//! hostname.

use std::collections::HashSet;

use sesame_proto::schema;

use super::reached_by::ReachedBy;
use crate::resolve::listeners::CheckedListener;
use crate::resolve::routes::attachments::Attachment;
use crate::resolve::syntax::hostnames::Hostname;

/// A served listener, with the data for building its tables.
pub(crate) struct PlacedListener<'a> {
    pub(crate) listener: &'a CheckedListener<'a>,
    /// Name of the Gateway's client key for connections to backends.
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

    /// Returns how the Gateway reaches the backends of the route with this index.
    pub(crate) fn reached_by(&self, route: usize) -> ReachedBy<'_> {
        let attachments = self.attachments;
        let found = attachments.binary_search_by_key(&route, |attachment| attachment.route);
        let attachment = found.ok().and_then(|place| attachments.get(place));
        ReachedBy {
            client_key: self.client_key,
            mesh: attachment.and_then(|attachment| attachment.mesh),
        }
    }

    /// Returns the listener's authorization filters. Their Backend names also encode how to reach
    /// the Backends.
    pub(crate) fn external_auth(&self) -> Vec<schema::ExternalAuth> {
        let reached_by = ReachedBy {
            client_key: self.client_key,
            mesh: None,
        };
        let all = self.listener.filters.external_auth.iter().cloned();
        all.map(|auth| reached_by.external_auth(auth)).collect()
    }

    /// Returns the URL scheme of the requests that the listener receives.
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

/// Hostnames of a port's listeners. The most specific one that covers a host selects the listener.
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

    /// Returns true if requests for the host go to a listener other than the one with the hostname
    /// `listener`.
    pub(crate) fn has_another(&self, listener: &Hostname, host: &Hostname) -> bool {
        let mut keys = host.covering_keys();
        let owner = keys.find(|key| self.0.contains(key));
        owner.is_some_and(|owner| owner != listener.key())
    }

    /// Returns true if, of all hostnames that cover the whole domain, `listener` is the most
    /// specific. Requests for some of the domain's hosts may still go to more specific listeners.
    pub(crate) fn owns(&self, listener: &Hostname, domain: &Hostname) -> bool {
        // A single listener owns each domain that it covers.
        self.0.len() == 1
            || domain.covering_keys().find(|key| self.0.contains(key)) == Some(listener.key())
    }
}
