//! Targets for the time until a change is approved.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use super::{Target, render_difference};
use crate::addresses::overlap;
use sesame_proto::encoded::EncodedSnapshot;

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
            files: Arc::clone(&newer.files),
            revision: OnceLock::new(),
            expiries: OnceLock::new(),
            times: OnceLock::new(),
        }
    }
}
