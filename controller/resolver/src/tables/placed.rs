//! Listeners on the same Envoy instances, and the hostnames that each listener owns.

use std::collections::HashSet;

use sesame_proto::schema;

use super::reached_by::ReachedBy;
use crate::listeners::CheckedListener;
use crate::routes::attachments::Attachment;
use crate::syntax::hostnames::Hostname;

pub(crate) struct PlacedListener<'a> {
    pub(crate) listener: &'a CheckedListener<'a>,
    /// Name of the client certificate's key, for connections to backends.
    pub(crate) client_key: Option<&'a str>,
    pub(crate) attachments: &'a [Attachment<'a>],
    pub(crate) protocol: schema::Protocol,
    pub(crate) port: u16,
    pub(crate) hostname: &'a Hostname,
}

impl PlacedListener<'_> {
    /// Returns an empty string if the listener has no route table.
    pub(crate) fn route_table(&self) -> String {
        match self.protocol {
            schema::Protocol::Http => http_table(self.port),
            schema::Protocol::Https => format!("https/{}/{}", self.port, self.listener.provenance),
            schema::Protocol::Tls | schema::Protocol::RawTcp | schema::Protocol::RawUdp => {
                String::new()
            }
        }
    }

    pub(crate) fn reached_by(&self, route: usize) -> ReachedBy<'_> {
        let attachments = self.attachments;
        let found = attachments.binary_search_by_key(&route, |attachment| attachment.route);
        let attachment = found.ok().and_then(|place| attachments.get(place));
        ReachedBy {
            client_key: self.client_key,
            mesh: attachment.and_then(|attachment| attachment.mesh),
        }
    }

    pub(crate) fn external_auth(&self) -> Vec<schema::ExternalAuth> {
        let reached_by = ReachedBy {
            client_key: self.client_key,
            mesh: None,
        };
        let all = self.listener.filters.external_auth.iter().cloned();
        all.map(|auth| reached_by.external_auth(auth)).collect()
    }

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

/// A host's owner is the listener with the most specific hostname that covers the host.
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

    /// Returns true if requests for the host go to another listener.
    pub(crate) fn has_another(&self, listener: &Hostname, host: &Hostname) -> bool {
        let mut keys = host.covering_keys();
        let owner = keys.find(|key| self.0.contains(key));
        owner.is_some_and(|owner| owner != listener.key())
    }

    /// Returns true unless another listener covers the entire domain more specifically. Individual
    /// hosts in the domain may still have more specific listeners.
    pub(crate) fn owns(&self, listener: &Hostname, domain: &Hostname) -> bool {
        // A port's only hostname owns every domain that it covers.
        self.0.len() == 1
            || domain.covering_keys().find(|key| self.0.contains(key)) == Some(listener.key())
    }
}
