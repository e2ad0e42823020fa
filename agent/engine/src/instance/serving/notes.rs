//! Publishes an instance's observations of its Envoy and its target. Never makes decisions.

use super::{ADMIN_ANSWER, Serving};
use crate::metrics::open_connections;
use crate::observed::Observed;
use sesame_envoy::locate::Version;
use sesame_envoy::restart::Restarted;

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

    pub(super) async fn record_held(&mut self) {
        self.count_held().await;
        let counted = self.held_drain.as_ref();
        let drain = counted.map(|(held, open)| {
            held.message(|port| {
                let open = open.as_ref()?.iter();
                let same = open.filter(|((number, protocol), _)| port.counts(*number, protocol));
                Some(same.map(|(_, count)| count).sum())
            })
        });
        let held = self.selector.held().or(drain);
        let waiting = self.selector.waiting();
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
                let waits = observed.waiting != waiting;
                if waits {
                    if let Some(why) = &waiting {
                        tracing::info!("{why}");
                    }
                    observed.waiting = waiting;
                }
                changed || waits
            });
    }

    /// Must be called before the target is published, so that the count restarts with it.
    pub(super) fn count_deaths(&self) {
        let rollout = self.selector.rollout();
        self.instance.observed.send_if_modified(|observed| {
            let before = observed.deaths();
            let total = observed.counts.deaths();
            observed.death_count.follow(rollout, total);
            observed.deaths() != before
        });
    }

    /// Counts once for each held change, so that the report does not change with each connection.
    async fn count_held(&mut self) {
        let held = self.selector.held_drain();
        if self.held_drain.as_ref().map(|(counted, _)| counted) == held {
            return;
        }
        let held = held.cloned();
        self.held_drain = match held {
            None => None,
            Some(held) => {
                let admin = self.supervisor.admin().with_timeout(ADMIN_ANSWER);
                let open = open_connections(&admin).await;
                Some((held, open.ok()))
            }
        };
    }
}
