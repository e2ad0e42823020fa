//! Targets for the time until a change is approved.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use super::{Target, render_difference};
use crate::addresses::overlap;
use sesame_proto::encoded::{EncodedSnapshot, Entry};
use sesame_sources::update::Staging;

impl Target {
    /// Returns as much of `newer` as does not drain the owner's listeners: its routes and backends
    /// if these do not depend on the changed listeners, and in any case its endpoints, keys, CA
    /// certificates and key sets. The second value is true if routes and backends wait.
    pub(crate) fn holding(&self, newer: &Self) -> (Self, bool) {
        let routes = newer.encoded.with_listeners_of(&self.encoded);
        let whole = routes.is_none();
        let material = || self.encoded.with_material_of(&newer.encoded);
        (
            self.changed_to(routes.unwrap_or_else(material), newer),
            whole,
        )
    }

    /// Returns this target with the endpoints, keys, CA certificates and key sets of `newer`, for a
    /// host that may not serve `newer` yet.
    pub(crate) fn waiting_for(&self, newer: &Self) -> Self {
        let others = match newer.staging {
            // A bundle has no endpoints of Services that only the older revision uses.
            Staging::Ring { .. } => self.endpoints_without(newer),
            _ => newer.others.to_vec(),
        };
        let encoded = self.encoded.with_material(&newer.encoded, &others);
        self.changed_to(encoded, newer)
    }

    fn endpoints_without(&self, newer: &Self) -> Vec<Entry> {
        let known = newer.encoded.endpoint_entries().iter().map(Entry::name);
        let known: BTreeSet<&str> = known.collect();
        let mut own = self.encoded.endpoint_entries().to_vec();
        own.retain(|set| !known.contains(set.name()));
        own
    }

    pub(crate) fn shares_socket_with(&self, other: &Self) -> bool {
        let same =
            |a: SocketAddr, b: SocketAddr| a.port() == b.port() && overlap(&[a.ip()], &[b.ip()]);
        let mut sockets = self.sockets();
        sockets.any(|(transport, address)| {
            let mut others = other.sockets();
            others.any(|(its, other)| its == transport && same(address, other))
        })
    }

    fn changed_to(&self, encoded: EncodedSnapshot, newer: &Self) -> Self {
        let options = sesame_render::RenderOptions {
            // Other addresses would be other listeners.
            addresses: self.options.addresses.clone(),
            ..newer.options.clone()
        };
        let before = Some(self).filter(|before| before.options == options);
        let mut rendered = before
            .and_then(|before| render_difference(before, &encoded, &options))
            .unwrap_or_else(|| sesame_render::render_encoded(&encoded, &options));
        rendered.share_with(&self.rendered);
        Self {
            rendered,
            options,
            encoded: Arc::new(encoded),
            assignment: self.assignment.clone(),
            bootstrap: newer.bootstrap.clone(),
            restored: false,
            cause: newer.cause.clone(),
            // The controller knows no revision that combines two.
            manifest_revision: self.manifest_revision.clone(),
            retained: Vec::new(),
            staging: newer.staging.clone(),
            others: Arc::clone(&newer.others),
            files: Arc::clone(&newer.files),
            revision: OnceLock::new(),
            staged_digest: OnceLock::new(),
            expiries: OnceLock::new(),
            times: OnceLock::new(),
        }
    }
}
