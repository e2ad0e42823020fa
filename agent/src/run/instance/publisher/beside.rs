//! Brings Envoy what does not wait for a whole change: newer endpoints and route tables before it, and the removal of what is left over after it.
//!
//! Must not decide what is served: that is the change's own.

use std::collections::BTreeMap;

use sesame_render::Rendered;

use super::Publisher;
use crate::apply::{self, Outcome, Removal, Waiting};
use crate::run::target::Target;

impl Publisher {
    /// Returns the parts of a target that Envoy has not been brought yet.
    pub(in crate::run::instance) fn waiting(&self, wanted: &Target) -> Waiting {
        Waiting::of(self.applier.on_disk(), &wanted.rendered)
    }

    /// Returns what may go ahead of a change whose turn has not come: newer endpoints of clusters that Envoy has.
    pub(in crate::run::instance) fn endpoints_ahead(&self, wanted: &Target) -> Option<Rendered> {
        if !self.quarantine.is_clear() {
            return None;
        }
        apply::endpoints_ahead(self.applier.on_disk(), &wanted.rendered)
    }

    /// Returns what may go ahead of it besides: newer route tables, if the clusters of all routes are there.
    pub(in crate::run::instance) fn route_tables_ahead(
        &self,
        wanted: &Target,
        waiting: Waiting,
    ) -> Option<Rendered> {
        if !self.quarantine.is_clear() {
            return None;
        }
        apply::route_tables_ahead(self.applier.on_disk(), &wanted.rendered, waiting)
    }

    /// Brings Envoy what goes ahead. Returns false if it is not taken: it goes with the change then, which judges it.
    pub(in crate::run::instance) async fn send_ahead(&mut self, ahead: &Rendered) -> bool {
        let desired = apply::Desired {
            rendered: ahead,
            serials: &BTreeMap::new(),
            may_empty: false,
        };
        match self.applier.apply(desired, Some(&self.admin)).await {
            Ok(report) => {
                tracing::debug!(outcome = ?report.outcome, "a part of a change was sent ahead");
                self.observed.send_if_modified(|observed| {
                    observed.counts.note_steps(&report.steps);
                    false
                });
                matches!(report.outcome, Outcome::Applied | Outcome::Unchanged)
            }
            Err(error) => {
                tracing::debug!(%error, "a part of a change cannot be sent ahead");
                false
            }
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
