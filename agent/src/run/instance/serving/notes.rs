//! Publishes an instance's observations of its Envoy and its target. Never makes decisions.

use super::{ADMIN_ANSWER, Serving};
use crate::envoy::locate::Version;
use crate::envoy::restart::Restarted;
use crate::run::observed::Observed;

impl Serving {
    pub(super) fn record_replaced(&mut self, replaced: Result<Restarted, String>) {
        match &replaced {
            Ok(restarted) => self.publisher.record_replaced(*restarted),
            Err(error) => tracing::error!("{error}"),
        }
        let observed = &self.instance.observed;
        observed.send_modify(|observed| observed.outdated = replaced.err());
    }

    /// The launcher's Envoy may have a different version from the agent's.
    pub(super) async fn record_version(&self) {
        let admin = self.supervisor.admin().with_timeout(ADMIN_ANSWER);
        let version = match admin.server_info().await {
            Ok(info) => Version::of_build(&info.version),
            Err(error) => {
                tracing::debug!(%error, "Envoy did not report its version");
                None
            }
        };
        if let Some(version) = version {
            let observed = &self.instance.observed;
            observed.send_modify(|observed| observed.envoy.version = version.to_string());
        }
    }

    pub(super) fn record_held(&self) {
        let held = self.selector.held();
        self.instance
            .observed
            .send_if_modified(|observed: &mut Observed| {
                let changed = observed.held != held;
                if changed {
                    if let Some(why) = &held {
                        tracing::warn!("{why}");
                    }
                    observed.held = held;
                }
                changed
            });
    }
}
