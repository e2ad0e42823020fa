//! Executes a plan against a running Envoy. A rejected file must not remain on disk, because it
//! would cause an outage at the next start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::ahead;
use super::journal::Files;
use super::on_disk::{OnDisk, find};
use super::plan::{Phase, Plan, PlanStep, Write, plan};
use super::removal::Removal;
use super::report::{ApplyReport, Outcome, Refusal, StepReport};
use super::request::{ApplyError, Desired, Opened};
use super::rollback;
use super::serials::check_serials;
use super::shown_endpoints::ShownEndpoints;
use super::wait::{Expectation, Patience, Watcher, listener_counts};
use sesame_envoy::admin::Admin;
use sesame_envoy::log::EnvoyLog;
use sesame_host::remove_if_exists;
use sesame_host::reserve::EnvoyInstances;
use sesame_render::layout::XdsLayout;
use sesame_render::xds::{Subscription, XdsKind, response};
use sesame_render::{Rendered, Resource};

/// Applies rendered resources to the files of one Envoy.
#[derive(Debug)]
pub struct Applier {
    files: Files,
    log: EnvoyLog,
    pub(super) on_disk: OnDisk,
    pub(super) confirmed: bool,
    patience: Patience,
    pace: Duration,
    removal: Removal,
    retired: bool,
    instances: EnvoyInstances,
}

impl Applier {
    /// Opens the files under `layout`, and rolls back an interrupted transaction. `envoy` is the
    /// Envoy that watches these files, if it is running.
    pub async fn open(
        layout: XdsLayout,
        log: EnvoyLog,
        envoy: Option<&Admin>,
    ) -> Result<(Self, Opened), ApplyError> {
        let root = layout.root().to_owned();
        let files = Files::open(layout).map_err(|source| ApplyError::Io {
            action: "creating directories",
            root,
            source,
        })?;
        let mut applier = Self {
            files,
            log,
            on_disk: OnDisk::default(),
            confirmed: false,
            patience: Patience::default(),
            pace: Duration::ZERO,
            removal: Removal::AtOnce,
            retired: false,
            instances: EnvoyInstances::default(),
        };
        let undone = rollback::all(&mut applier.files, envoy).await;
        let undone =
            undone.map_err(|source| applier.io("undoing an interrupted transaction", source))?;
        let junk = applier.reread()?;
        Ok((applier, Opened { undone, junk }))
    }

    /// Replaces the time limits.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// Sets the reserve from which transactions borrow inotify instances for Envoy.
    #[must_use]
    pub fn with_instances(self, instances: EnvoyInstances) -> Self {
        Self { instances, ..self }
    }

    /// Sets the delay between steps, for use while two Envoy processes read the same files.
    pub fn set_pace(&mut self, pace: Duration) {
        self.pace = pace;
    }

    /// Sets when later transactions remove unused resources from a running Envoy.
    pub fn set_removal(&mut self, removal: Removal) {
        self.removal = removal;
    }

    /// Returns true if a transaction has removed route tables since the last call. Draining
    /// connections still use the removed tables.
    pub fn take_retired(&mut self) -> bool {
        std::mem::take(&mut self.retired)
    }

    /// Rereads the files, because another program may have changed them. Removes foreign and
    /// damaged files, and returns their paths.
    pub fn reread(&mut self) -> Result<Vec<PathBuf>, ApplyError> {
        let found =
            find(self.files.layout()).map_err(|source| self.io("reading the files", source))?;
        for junk in found.junk.iter().filter(|junk| !junk.is_dir()) {
            remove_if_exists(junk).map_err(|source| self.io("removing a foreign file", source))?;
        }
        self.on_disk = found.on_disk;
        self.files.forget_shares();
        self.confirmed = false;
        Ok(found.junk)
    }

    /// Writes the shares file if the shares have changed. The file must exist before Envoy starts,
    /// and must be current before many backends are added.
    ///
    /// This file and the fleet's hosts are not part of a transaction, because Envoy does not reject
    /// their content and outdated values are harmless.
    pub fn share_out(&mut self, shares: &Bytes) -> Result<(), ApplyError> {
        let written = self.files.share_out(shares);
        written.map_err(|source| self.io("writing the shares", source))
    }

    /// Writes the number of live hosts if it has changed.
    pub fn count_hosts(&mut self, hosts: u32) -> Result<(), ApplyError> {
        let written = self.files.count_hosts(hosts);
        written.map_err(|source| self.io("writing the number of hosts", source))
    }

    /// Rewrites a file unchanged to make Envoy reread it. Does nothing if the file is missing.
    pub fn place_again(&self, subscription: &Subscription) -> Result<(), ApplyError> {
        let placed = self.files.place_again(subscription);
        placed.map_err(|source| self.io("rewriting a file", source))
    }

    /// Returns the content of the files on disk, as last read or applied.
    pub fn on_disk(&self) -> &OnDisk {
        &self.on_disk
    }

    /// Applies the desired state to the files, and to Envoy if it is running. Do not drop the
    /// future early: the next `apply` or `open` would undo the partial transaction.
    pub async fn apply(
        &mut self,
        desired: Desired<'_>,
        envoy: Option<&Admin>,
    ) -> Result<ApplyReport, ApplyError> {
        let count = self.on_disk.content.listeners.len();
        if count > 0 && desired.rendered.listeners.is_empty() && !desired.may_empty {
            return Err(ApplyError::Empties { count });
        }
        // The future of an earlier transaction may have been dropped.
        if !self.files.entries().is_empty() {
            self.restore(envoy).await?;
        }
        if let (Some(envoy), false) = (envoy, self.confirmed) {
            self.confirm(envoy).await;
        }
        let retires = envoy.is_some() && self.on_disk.has_more_tables_than(desired.rendered);
        let removal = match envoy {
            None => Removal::AtOnce,
            Some(_) if retires => Removal::Hold,
            Some(_) => self.removal,
        };
        let plan = plan(&self.on_disk, desired.rendered, removal)?;
        // More hosts may need larger buckets, which Envoy may reject together with other changes.
        let hosts_follow = self.on_disk.content.filters != desired.rendered.filters;
        if !hosts_follow {
            self.count_hosts(desired.rendered.fleet_hosts)?;
        }
        let shares = &desired.rendered.shares;
        // With thousands of backends, Envoy takes milliseconds to load the shares file, so write
        // the file after the change if possible.
        let goes_ahead = ahead::goes_ahead_of_shares(&self.on_disk, desired.rendered);
        let shares_follow = envoy.is_some() && !plan.is_empty() && goes_ahead;
        if !shares_follow {
            self.share_out(shares)?;
        }
        let mut report = ApplyReport::default();
        if plan.is_empty() {
            return Ok(report);
        }
        // Keep the instances reserved until Envoy has accepted the files.
        let _loan = match envoy {
            Some(_) => Some(self.instances.borrow(plan.new_leaves())?),
            None => None,
        };
        let done = match envoy {
            Some(envoy) => self.execute(&plan, desired, envoy, &mut report).await,
            None => self.write_all(&plan).map(|()| Ok(())),
        };
        match done {
            Ok(Ok(())) => {
                self.finish(&plan, desired.rendered, envoy.is_some())?;
                self.retired |= retires;
                if shares_follow {
                    self.share_out(shares)?;
                }
                if hosts_follow {
                    self.count_hosts(desired.rendered.fleet_hosts)?;
                }
                report.outcome = if envoy.is_some() {
                    Outcome::Applied
                } else {
                    Outcome::NotRunning
                };
                Ok(report)
            }
            Ok(Err(outcome)) => {
                // The next Envoy starts from the restored files.
                let alive = envoy.filter(|_| !matches!(outcome, Outcome::Gone { .. }));
                self.restore(alive).await?;
                report.outcome = outcome;
                Ok(report)
            }
            Err(source) => {
                let error = self.io("writing a file", source);
                self.restore(envoy).await?;
                Err(error)
            }
        }
    }

    /// Without a running Envoy, a file only needs to exist before other files refer to it.
    fn write_all(&mut self, plan: &Plan) -> io::Result<()> {
        for step in &plan.steps {
            self.write_step(step)?;
        }
        Ok(())
    }

    fn write_step(&mut self, step: &PlanStep) -> io::Result<Vec<Expectation>> {
        let mut expected = Vec::with_capacity(step.writes.len());
        for write in &step.writes {
            let kind = write.subscription.kind;
            let file = response::encode(kind, &write.resources);
            self.files.write(&write.subscription, &file.bytes)?;
            expected.push(Expectation {
                subscription: write.subscription.clone(),
                version: file.version,
                must_exist: kind.is_list(),
                advisory: write.new && !kind.is_list(),
                shown: self.shown(write),
            });
        }
        for gone in &step.removals {
            self.files.remove(gone)?;
        }
        Ok(expected)
    }

    fn may_warm(&self, step: &PlanStep) -> bool {
        match step.phase {
            Phase::ListenersUnion => true,
            Phase::ClustersUnion => {
                let mut writes = step.writes.iter();
                writes.any(|write| ahead::may_warm(&self.on_disk, &write.resources))
            }
            Phase::Leaves
            | Phase::RouteTables
            | Phase::Filters
            | Phase::Listeners
            | Phase::Clusters
            | Phase::Orphans => false,
        }
    }

    /// Returns `None` unless the write replaces an existing endpoint set.
    fn shown(&self, write: &Write) -> Option<ShownEndpoints> {
        if write.new || write.subscription.kind != XdsKind::Endpoints {
            return None;
        }
        let before = self.on_disk.content.endpoints.as_ref();
        let name = |resource: &Resource| resource.name.cmp(&write.subscription.name);
        let before = before.get(before.binary_search_by(name).ok()?)?;
        ShownEndpoints::of(&before.bytes, &write.resources.first()?.bytes)
    }

    async fn execute(
        &mut self,
        plan: &Plan,
        desired: Desired<'_>,
        envoy: &Admin,
        report: &mut ApplyReport,
    ) -> io::Result<Result<(), Outcome>> {
        // Envoy reads new files only after it has accepted a resource that refers to them.
        let mut fresh: Vec<Expectation> = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            if index > 0 && !self.pace.is_zero() {
                tokio::time::sleep(self.pace).await;
            }
            let start = Instant::now();
            let listeners_before = listener_counts(step.phase, envoy).await;
            let mark = self.log.mark();
            let mut expected = self.write_step(step)?;
            let until_renamed = start.elapsed();
            if step.phase == Phase::Leaves {
                let (new, changed) = expected.into_iter().partition(|e| e.advisory);
                (fresh, expected) = (new, changed);
            } else {
                expected.extend(fresh.iter().cloned());
            }
            let watcher = Watcher {
                envoy,
                log: &self.log,
                files: &self.files,
                patience: self.patience,
            };
            if !step.writes.is_empty() {
                let accepted = watcher.accepted(step.phase, &expected, mark, report).await;
                if let Err(outcome) = accepted {
                    return Ok(Err(outcome));
                }
            }
            if self.may_warm(step)
                && let Err(outcome) = watcher.warm(step.phase, report).await
            {
                return Ok(Err(outcome));
            }
            let checked = check_serials(step.phase, &expected, desired, &watcher, report).await;
            if let Err(outcome) = checked {
                return Ok(Err(outcome));
            }
            if watcher.await_workers(listeners_before).await > 0 {
                let words = self.log.complaints_since(mark);
                return Ok(Err(Outcome::Refused(Refusal {
                    phase: step.phase,
                    subscriptions: vec![Subscription::new(XdsKind::Listeners, "")],
                    envoy_words: words.into_iter().map(|c| c.words).collect(),
                })));
            }
            report.steps.push(StepReport {
                phase: step.phase,
                writes: step.writes.len(),
                began: start,
                until_renamed,
                until_accepted: start.elapsed(),
            });
        }
        Ok(Ok(()))
    }

    fn finish(
        &mut self,
        plan: &Plan,
        rendered: &Rendered,
        confirmed: bool,
    ) -> Result<(), ApplyError> {
        self.files
            .commit()
            .map_err(|source| self.io("dropping the journal", source))?;
        if !confirmed {
            self.files
                .remove_empty_directories()
                .map_err(|source| self.io("removing empty directories", source))?;
        }
        self.on_disk = plan.outcome(rendered);
        // These fields are also empty after a reload from disk.
        self.on_disk.content.shares = Bytes::new();
        self.on_disk.content.fleet_hosts = 0;
        self.on_disk.content.inline = 0;
        self.on_disk.content.in_files = Arc::default();
        self.on_disk.content.subscriptions = 0;
        self.confirmed = confirmed;
        Ok(())
    }

    async fn restore(&mut self, envoy: Option<&Admin>) -> Result<(), ApplyError> {
        let result = rollback::all(&mut self.files, envoy).await;
        let result = result.map_err(|source| self.io("restoring files", source));
        if result.is_err() {
            self.confirmed = false;
            self.on_disk = OnDisk::load(self.files.layout())
                .map_err(|source| self.io("reading the files", source))?;
        }
        result.map(|_| ())
    }

    fn io(&self, action: &'static str, source: io::Error) -> ApplyError {
        ApplyError::Io {
            action,
            root: self.files.layout().root().to_owned(),
            source,
        }
    }
}
