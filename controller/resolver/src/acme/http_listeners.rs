//! Finds the listeners that receive a CA's requests over HTTP.
//!
//! On each port, only the listener with the most specific hostname receives a request. A namespace
//! whose routes that listener does not permit could never serve the hostname.

use std::collections::{BTreeMap, HashMap};

use sesame_kinds::world::ObjectKey;
use sesame_proto::schema;

use crate::gateways::CheckedGateway;
use crate::listeners::CheckedListener;
use crate::syntax::hostnames::Hostname;

/// A listener, and the Gateway or ListenerSet with it.
pub(super) struct HttpListener<'a, 'w> {
    pub(super) object: ObjectKey,
    pub(super) listener: &'a CheckedListener<'w>,
}

/// HTTP listeners of a Gateway and its ListenerSets, by port and hostname.
pub(super) struct HttpListeners<'a, 'w>(BTreeMap<u16, HashMap<&'a str, HttpListener<'a, 'w>>>);

impl<'a, 'w> HttpListeners<'a, 'w> {
    pub(super) fn of(gateway: &'a CheckedGateway<'w>) -> Self {
        let mut by_port: BTreeMap<u16, HashMap<&str, HttpListener<'_, '_>>> = BTreeMap::new();
        let own = (gateway.owner.key(), gateway.own_listeners());
        let sets = gateway.listener_sets();
        let sets = sets.map(|set| (set.owner.key(), gateway.listeners_of(set)));
        for (object, listeners) in std::iter::once(own).chain(sets) {
            for listener in listeners.iter().filter(|listener| listener.is_served()) {
                let (Some(port), Some(hostname)) = (listener.port, hostname(listener)) else {
                    continue;
                };
                let of_port = by_port.entry(port).or_default();
                of_port.entry(hostname.key()).or_insert(HttpListener {
                    object: object.clone(),
                    listener,
                });
            }
        }
        Self(by_port)
    }

    /// Returns the listener that receives requests for the hostname, for each port.
    pub(super) fn receiving(
        &self,
        hostname: &Hostname,
    ) -> impl Iterator<Item = (u16, &HttpListener<'a, 'w>)> {
        let ports = self.0.iter();
        ports.filter_map(move |(port, listeners)| {
            let mut keys = hostname.covering_keys();
            let found = keys.find_map(|key| listeners.get(key))?;
            Some((*port, found))
        })
    }
}

/// Returns the hostname whose requests over HTTP the listener receives, even to reject them.
fn hostname<'a>(listener: &'a CheckedListener<'_>) -> Option<&'a Hostname> {
    match &listener.holds {
        Some(held) => (!held.tls).then_some(&held.hostname),
        None if listener.protocol == Some(schema::Protocol::Http) => listener.hostname.as_ref(),
        None => None,
    }
}
