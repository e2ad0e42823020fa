//! Fits a target to the free inotify instances, by inlining content.
//!
//! Must never take a file from a running Envoy, except to make room for a more valuable file or for
//! the Envoy's successor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_render::layout::file_name;

use super::Publisher;
use crate::target::Target;
use sesame_apply::publish::{Published, publish};
use sesame_apply::quarantine::Configuration;
use sesame_apply::{ApplyError, Outcome};
use sesame_host::reserve::{REMEDY, SPARE};
use sesame_render::xds::XdsKind;

/// Minimum time between attempts to add files. Adding files recreates clusters or listeners, so do
/// it rarely.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait for Envoy to close files. The kernel takes 10 ms for each file.
const CLOSING: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

pub(super) struct FittedTarget {
    whole: Arc<Target>,
    fitted: Arc<Target>,
    /// Number of files.
    budget: usize,
    /// Earliest time at which the target may get more files.
    again: Instant,
}

impl Publisher {
    /// Returns the target that was published.
    pub(super) async fn publish_fitted(
        &mut self,
        whole: &Arc<Target>,
        newer: impl Fn() -> bool + Send + Sync,
    ) -> (Arc<Target>, Result<Published, ApplyError>) {
        let mut target = self.fit(whole);
        let (mut is_clean, mut has_room) = (false, false);
        loop {
            let configuration = Configuration {
                encoded: &target.encoded,
                options: &target.options,
                rendered: &target.rendered,
            };
            let (quarantine, applier) = (&mut self.quarantine, &mut self.applier);
            let published = publish(quarantine, applier, &self.admin, configuration, &newer).await;
            let Err(ApplyError::Watches(lacking)) = published else {
                return (target, published);
            };
            let missing = lacking.needed - lacking.free;
            if !is_clean {
                is_clean = true;
                // Unused clusters may hold some of the missing instances.
                if self.has_left_over() {
                    self.remove_left_over().await;
                    self.await_closing(lacking.needed).await;
                    continue;
                }
            }
            if !has_room {
                has_room = true;
                if self.make_room(missing, lacking.needed).await {
                    continue;
                }
            }
            let before = target.rendered.subscriptions;
            target = self.fit_within(whole, before.saturating_sub(missing));
            if target.rendered.subscriptions >= before {
                return (target, published);
            }
        }
    }

    pub(super) fn fit(&mut self, whole: &Arc<Target>) -> Arc<Target> {
        let budget = self.instances.budget(whole.rendered.subscriptions);
        match &self.fitted {
            Some(last) if last.budget < budget && Instant::now() < last.again => {
                self.fit_within(whole, last.budget)
            }
            _ => self.fit_within(whole, budget),
        }
    }

    fn fit_within(&mut self, whole: &Arc<Target>, budget: usize) -> Arc<Target> {
        if budget >= whole.rendered.subscriptions {
            self.fitted = None;
            self.report_scarcity(None);
            return Arc::clone(whole);
        }
        if let Some(last) = &self.fitted
            && Arc::ptr_eq(&last.whole, whole)
            && last.budget == budget
        {
            return Arc::clone(&last.fitted);
        }
        let fitted = self.render_within(whole, budget);
        self.record_fitted(Arc::clone(whole), &fitted, budget);
        fitted
    }

    /// Endpoint sets that already have a file keep it.
    fn render_within(&self, whole: &Target, budget: usize) -> Arc<Target> {
        let files = self.applier.on_disk().resources(XdsKind::Endpoints).iter();
        let files = files.map(|file| file_name(&file.name)).collect();
        let last = self.fitted.as_ref().map(|last| &*last.fitted);
        Arc::new(whole.within(budget, files, last))
    }

    fn record_fitted(&mut self, whole: Arc<Target>, fitted: &Arc<Target>, budget: usize) {
        let files = fitted.rendered.subscriptions;
        let wanted = whole.rendered.subscriptions;
        let again = match &self.fitted {
            Some(last) if last.budget == budget => last.again,
            _ => Instant::now() + RETRY_INTERVAL,
        };
        self.report_scarcity(Some(format!(
            "Envoy watches {files} files instead of {wanted}, because other processes of this user hold the inotify instances. Changes to endpoints, keys and route tables without a separate file take longer; {REMEDY}"
        )));
        self.fitted = Some(FittedTarget {
            whole,
            fitted: Arc::clone(fitted),
            budget,
            again,
        });
    }

    pub(in crate::instance) fn next_fit(&self) -> Option<Instant> {
        self.fitted.as_ref().map(|last| last.again)
    }

    /// Returns true if more instances are free. Otherwise, postpones the next check.
    pub(in crate::instance) fn may_fit_more(&mut self) -> bool {
        let Some(last) = &mut self.fitted else {
            return false;
        };
        let may = self.instances.budget(last.whole.rendered.subscriptions) > last.budget;
        if !may {
            last.again = Instant::now() + RETRY_INTERVAL;
        }
        may
    }

    /// Frees inotify instances if too few are free for the successor of the running Envoy.
    pub(in crate::instance) async fn make_room_for_successor(&mut self) {
        let needed = self.instances.files() + SPARE;
        let missing = needed - self.instances.free(needed);
        // Each closed file frees one instance, and the successor needs one fewer.
        let half = missing.div_ceil(2);
        if half > 0 {
            self.make_room(half, needed - half).await;
        }
    }

    /// Makes Envoy stop watching the least valuable files. Returns true if Envoy watches fewer
    /// files than before.
    async fn make_room(&mut self, fewer: usize, free: usize) -> bool {
        let Some(served) = self.observed.borrow().applied.clone() else {
            return false;
        };
        let before = served.rendered.subscriptions;
        let budget = before.saturating_sub(fewer);
        let fitted = self.render_within(&served, budget);
        let files = fitted.rendered.subscriptions;
        if files >= before {
            return false;
        }
        match self.apply_rendered(&fitted.rendered).await {
            Ok(Outcome::Applied | Outcome::Unchanged) => {}
            Ok(outcome) => {
                tracing::warn!(?outcome, "Envoy did not stop watching files");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot make Envoy stop watching files");
                return false;
            }
        }
        let last = self.fitted.take().map(|last| last.whole);
        self.record_fitted(last.unwrap_or(served), &fitted, budget);
        self.observed
            .send_modify(|observed| observed.applied = Some(fitted));
        self.await_closing(free).await;
        self.instances.set_files(files);
        true
    }

    async fn await_closing(&self, free: usize) {
        let deadline = Instant::now() + CLOSING;
        while self.instances.free(free) < free && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
    }

    fn report_scarcity(&self, scarcity: Option<String>) {
        self.observed.send_if_modified(|observed| {
            let changed = observed.scarcity != scarcity;
            if changed {
                if let Some(why) = &scarcity {
                    tracing::warn!("{why}");
                } else {
                    tracing::info!("Envoy watches all of its files again");
                }
                observed.scarcity = scarcity;
            }
            changed
        });
    }
}
