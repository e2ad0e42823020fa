//! Applies parts of a change early, and removes unused clusters afterwards.

use std::collections::BTreeMap;

use sesame_render::Rendered;

use super::Publisher;
use crate::instance::pacing::Queue;
use crate::target::Target;
use sesame_apply::{ApplyError, Desired, Outcome, PendingChanges, Removal};

impl Publisher {
    pub(in crate::instance) fn waiting(&self, wanted: &Target) -> PendingChanges {
        PendingChanges::of(self.applier.on_disk(), &wanted.rendered)
    }

    /// Returns `None` if this part depends on the rest.
    pub(in crate::instance) fn ahead(
        &self,
        wanted: &Target,
        queue: Queue,
        waiting: PendingChanges,
    ) -> Option<Rendered> {
        // `wanted` must be reduced or fitted first.
        if !self.quarantine.is_clear() || self.fitted.is_some() {
            return None;
        }
        let (on_disk, wanted) = (self.applier.on_disk(), &wanted.rendered);
        match queue {
            Queue::Endpoints => sesame_apply::endpoints_ahead(on_disk, wanted),
            Queue::Routes => sesame_apply::route_tables_ahead(on_disk, wanted, waiting),
            Queue::InlineEndpoints => None,
        }
    }

    /// Returns false if Envoy does not accept the part.
    pub(in crate::instance) async fn send_ahead(&mut self, ahead: &Rendered) -> bool {
        match self.apply_rendered(ahead).await {
            Ok(outcome) => {
                tracing::debug!(?outcome, "applied part of a change early");
                matches!(outcome, Outcome::Applied | Outcome::Unchanged)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot apply part of a change early");
                false
            }
        }
    }

    /// Does not change which target counts as applied.
    pub(super) async fn apply_rendered(
        &mut self,
        rendered: &Rendered,
    ) -> Result<Outcome, ApplyError> {
        let desired = Desired {
            rendered,
            serials: &BTreeMap::new(),
            may_empty: false,
        };
        let report = self.applier.apply(desired, Some(&self.admin)).await?;
        self.observed.send_if_modified(|observed| {
            observed.counts.record_steps(&report.steps);
            false
        });
        Ok(report.outcome)
    }

    pub(in crate::instance) fn set_removal(&mut self, removal: Removal) {
        self.applier.set_removal(removal);
    }

    /// Returns true if connections to removed listeners may still be draining.
    pub(in crate::instance) fn take_retired(&mut self) -> bool {
        self.applier.take_retired()
    }

    pub(in crate::instance) fn has_left_over(&self) -> bool {
        let applied = &self.observed.borrow().applied;
        applied.as_ref().is_some_and(|served| {
            let on_disk = self.applier.on_disk();
            on_disk.has_more_clusters_than(&served.rendered)
        })
    }

    /// If the removal fails, a later change retries it.
    pub(in crate::instance) async fn remove_left_over(&mut self) {
        let Some(served) = self.observed.borrow().applied.clone() else {
            return;
        };
        // Route tables that were applied early may use these clusters.
        if self.applier.on_disk().content.route_tables != served.rendered.route_tables {
            return;
        }
        self.applier.set_removal(Removal::AtOnce);
        // Keep newer endpoints that were applied early.
        let used = self.applier.on_disk().only(&served.rendered);
        match self.apply_rendered(&used).await {
            Ok(outcome) => {
                tracing::debug!(?outcome, "removed unused clusters");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot remove unused clusters yet");
            }
        }
    }
}
