//! Brings Envoy what does not wait for a whole change: newer endpoints before it, and the removal of what is left over after it.
//!
//! Must not decide what is served: that is the change's own.

use std::collections::BTreeMap;

use super::Publisher;
use crate::apply::{self, Removal};
use crate::run::target::Target;

impl Publisher {
    /// Brings Envoy the newer endpoints of clusters that it has, for a change whose turn has not come. What is not taken goes with
    /// the change, which judges it.
    pub(in crate::run::instance) async fn send_endpoints_ahead(&mut self, wanted: &Target) {
        if !self.quarantine.is_clear() {
            return;
        }
        let Some(ahead) = apply::endpoints_ahead(self.applier.on_disk(), &wanted.rendered) else {
            return;
        };
        let desired = apply::Desired {
            rendered: &ahead,
            serials: &BTreeMap::new(),
            may_empty: false,
        };
        match self.applier.apply(desired, Some(&self.admin)).await {
            Ok(report) => {
                tracing::debug!(outcome = ?report.outcome, "endpoints were sent ahead");
                self.observed.send_if_modified(|observed| {
                    observed.counts.note_steps(&report.steps);
                    false
                });
            }
            Err(error) => tracing::debug!(%error, "endpoints cannot be sent ahead"),
        }
    }

    /// Says when changes remove what nothing uses any more.
    pub(in crate::run::instance) fn set_removal(&mut self, removal: Removal) {
        self.applier.set_removal(removal);
    }

    /// Returns whether Envoy has clusters that what it has accepted does not use.
    pub(in crate::run::instance) fn has_left_over(&self) -> bool {
        let applied = &self.observed.borrow().applied;
        applied.as_ref().is_some_and(|served| {
            let on_disk = self.applier.on_disk();
            on_disk.has_more_clusters_than(&served.rendered)
        })
    }

    /// Removes them. What Envoy does not take is as before, and is removed with a later change.
    pub(in crate::run::instance) async fn remove_left_over(&mut self) {
        let Some(served) = self.observed.borrow().applied.clone() else {
            return;
        };
        self.applier.set_removal(Removal::AtOnce);
        // Endpoints that were sent ahead stay.
        let used = self.applier.on_disk().only(&served.rendered);
        let desired = apply::Desired {
            rendered: &used,
            serials: &BTreeMap::new(),
            may_empty: false,
        };
        match self.applier.apply(desired, Some(&self.admin)).await {
            Ok(report) => {
                tracing::debug!(outcome = ?report.outcome, "clusters that nothing uses were removed");
                self.observed.send_if_modified(|observed| {
                    observed.counts.note_steps(&report.steps);
                    false
                });
            }
            Err(error) => {
                tracing::warn!(%error, "clusters that nothing uses cannot be removed yet");
            }
        }
    }
}
