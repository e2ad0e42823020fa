//! Applies targets to one Envoy. If a target cannot be published at all, the last accepted state
//! remains, both on disk and in Envoy.

mod beside;
mod fit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use self::fit::FittedTarget;
use super::Instance;
use super::handshakes::Handshakes;
use super::persister::Persister;
use crate::metrics::{ApplyOutcome, ProcessReason};
use crate::observed::Observed;
use crate::passwords::PasswordSets;
use crate::spans::{ApplyTry, InstanceSpans};
use crate::target::Target;
use sesame_apply::publish::Published;
use sesame_apply::quarantine::{Affected, Quarantine, Reduced, affected};
use sesame_apply::{Applier, ApplyError};
use sesame_envoy::handshake::Unproven;
use sesame_envoy::restart::Restarted;
use sesame_envoy::{Admin, State};
use sesame_host::reserve::EnvoyInstances;
use sesame_render::xds::{Subscription, XdsKind};

/// Delay between steps while an old Envoy drains. Steps are verified only on the new Envoy, so give
/// the old one time to keep up.
const PACE: Duration = Duration::from_millis(100);

pub(super) struct Publisher {
    observed: watch::Sender<Observed>,
    applier: Applier,
    admin: Admin,
    keeper: Persister,
    pub(super) quarantine: Quarantine,
    pub(super) handshakes: Handshakes,
    /// The last complete target and its reduced form.
    reduced: Option<(Arc<Target>, Arc<Target>)>,
    pid: u32,
    replaced: Option<Restarted>,
    spans: InstanceSpans,
    /// Inotify instances for this Envoy and its successor.
    instances: EnvoyInstances,
    fitted: Option<FittedTarget>,
    passwords: Arc<PasswordSets>,
}

impl Publisher {
    pub(super) fn new(
        instance: &Instance,
        applier: Applier,
        admin: Admin,
        first: &Arc<Target>,
    ) -> Self {
        let directories = &instance.directories;
        Self {
            keeper: Persister::start(
                directories.state.clone(),
                Arc::clone(&instance.settings.sealing),
                instance.observed.clone(),
            ),
            quarantine: Quarantine::new(
                instance.settings.binary.clone(),
                directories.runtime.join("validate"),
            )
            .with_instances(instance.instances())
            .with_last_good_keys(first.restored.then(|| Arc::clone(&first.encoded))),
            handshakes: Handshakes::new(first),
            observed: instance.observed.clone(),
            applier,
            admin,
            reduced: None,
            pid: 0,
            replaced: None,
            spans: InstanceSpans::new(instance.settings.spans.clone()),
            instances: instance.instances(),
            fitted: None,
            passwords: Arc::clone(&instance.passwords),
        }
    }

    pub(super) async fn finish(self) {
        self.keeper.finish().await;
    }

    /// Prevents the replacement from being counted as a crash.
    pub(super) fn record_replaced(&mut self, restarted: Restarted) {
        self.replaced = Some(restarted);
    }

    fn reason(&self, pid: u32, first: bool) -> ProcessReason {
        match self.replaced {
            Some(replaced) if replaced.now == pid => replaced.way.into(),
            _ if first => ProcessReason::Start,
            _ => ProcessReason::Death,
        }
    }

    /// Returns true if the target must be published again, because a new process may have read
    /// modified files.
    pub(super) async fn follow(
        &mut self,
        before: &State,
        now: &State,
        newest: &Arc<Target>,
    ) -> bool {
        match now {
            State::Backoff { .. } => {
                self.repair(newest).await;
                false
            }
            State::Live {
                pid,
                loaded,
                accompanied,
                ..
            } => {
                self.applier
                    .set_pace(if *accompanied { PACE } else { Duration::ZERO });
                let (first, other) = (self.pid == 0, self.pid != *pid);
                self.pid = *pid;
                if !loaded {
                    tracing::error!("Envoy is running, but has not loaded all of its files");
                    self.quarantine.suspect();
                }
                let new = other && !first;
                if other {
                    let reason = self.reason(*pid, first);
                    self.observed
                        .send_modify(|observed| observed.counts.record_process(reason));
                }
                if new || !loaded {
                    self.reread();
                }
                // The same process may respond again after an interruption.
                !loaded || new || (!before.is_live() && self.observed.borrow().applied.is_some())
            }
            _ => false,
        }
    }

    /// Restores the accepted files before Envoy starts again.
    async fn repair(&mut self, newest: &Arc<Target>) {
        self.reread();
        let accepted = self.observed.borrow().applied.clone();
        let on_disk = self.applier.on_disk();
        let there = on_disk.subscriptions();
        if accepted.is_none()
            && !on_disk.content.listeners.is_empty()
            && self.instances.budget(there) >= there
        {
            // The files are newer than any target known here.
            return;
        }
        // Other processes may have taken the dead Envoy's inotify instances.
        let fitted = self.fit(accepted.as_ref().unwrap_or(newest));
        let wanted = sesame_apply::Desired {
            rendered: &fitted.rendered,
            serials: &BTreeMap::new(),
            may_empty: false,
        };
        match self.applier.apply(wanted, None).await {
            Ok(_) => self.instances.set_files(fitted.rendered.subscriptions),
            Err(error) => tracing::error!(%error, "cannot repair the files for Envoy"),
        }
        if accepted.is_some() {
            self.observed
                .send_modify(|observed| observed.applied = Some(fitted));
        }
    }

    fn reread(&mut self) {
        match self.applier.reread() {
            Ok(junk) if junk.is_empty() => {}
            Ok(junk) => {
                tracing::warn!(files = ?junk, "rewriting damaged or unexpected files for Envoy");
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the files for Envoy");
            }
        }
    }

    /// Returns false if the attempt must be repeated.
    pub(super) async fn publish(
        &mut self,
        wanted: &Arc<Target>,
        newer: impl Fn() -> bool + Send + Sync,
    ) -> bool {
        let (timer, start) = (Instant::now(), SystemTime::now());
        self.offer_passwords(wanted);
        let (fitted, published) = self.publish_fitted(wanted, newer).await;
        self.count(&published, timer.elapsed());
        self.export_spans(wanted, start, &published);
        let trouble = match published {
            Ok(Published::Accepted { report, reduced }) => {
                let served = match reduced {
                    None => fitted,
                    Some(reduced) => self.reduced(&fitted, *reduced),
                };
                self.accepted(wanted, &served, &report);
                return true;
            }
            Ok(Published::Refused { envoy_messages }) => {
                // Only a newer target can succeed.
                tracing::error!(
                    "a change is rejected; the last accepted configuration is served: {}",
                    envoy_messages.join("; ")
                );
                self.observed
                    .send_modify(|observed| observed.refusal = envoy_messages);
                return true;
            }
            Ok(Published::Searching { envoy_messages }) => {
                self.observed
                    .send_modify(|observed| observed.refusal = envoy_messages);
                "the newest change is rejected; searching for the rejected parts".to_owned()
            }
            Ok(Published::NotYet { reason }) => reason,
            Err(error) => error.to_string(),
        };
        tracing::warn!("a change is not applied yet: {trouble}");
        self.observed
            .send_modify(|observed| observed.trouble = Some(trouble));
        false
    }

    /// Envoy may keep the accepted configuration, or return to it.
    fn offer_passwords(&self, wanted: &Target) {
        let accepted = self.observed.borrow().applied.clone();
        let accepted = accepted.iter().flat_map(|it| it.encoded.keys());
        self.passwords
            .offer(wanted.encoded.keys().iter().chain(accepted));
    }

    /// Does not wake receivers.
    fn count(&self, published: &Result<Published, ApplyError>, took: Duration) {
        let outcome = outcome_of(published);
        self.observed.send_if_modified(|observed| {
            observed.counts.record_apply(outcome, took);
            if let Ok(Published::Accepted { report, .. }) = published {
                observed.counts.record_steps(&report.steps);
            }
            false
        });
    }

    fn export_spans(
        &mut self,
        wanted: &Target,
        began: SystemTime,
        published: &Result<Published, ApplyError>,
    ) {
        let applied = self.observed.borrow().applied.clone();
        let is_first = applied.is_none_or(|applied| applied.restored);
        let (report, failure) = match published {
            Ok(Published::Accepted { report, .. }) if is_first && report.steps.is_empty() => {
                return self.spans.skip(wanted);
            }
            Ok(Published::Accepted { report, .. }) => (Some(report), None),
            Ok(Published::Refused { envoy_messages } | Published::Searching { envoy_messages }) => {
                (None, Some(envoy_messages.join("; ")))
            }
            Ok(Published::NotYet { reason }) => (None, Some(reason.clone())),
            Err(error) => (None, Some(error.to_string())),
        };
        let tried = ApplyTry {
            began,
            outcome: outcome_of(published),
            report,
            failure,
            is_last: matches!(
                published,
                Ok(Published::Accepted { .. } | Published::Refused { .. })
            ),
        };
        self.spans.export(wanted, &tried);
    }

    /// Returns the previous result if nothing has changed.
    fn reduced(&mut self, wanted: &Arc<Target>, left: Reduced) -> Arc<Target> {
        if let Some((of, reduced)) = &self.reduced
            && Arc::ptr_eq(of, wanted)
            && reduced.rendered == left.rendered
        {
            return Arc::clone(reduced);
        }
        let reduced = Arc::new(wanted.reduced_to(left));
        self.reduced = Some((Arc::clone(wanted), Arc::clone(&reduced)));
        reduced
    }

    fn accepted(
        &mut self,
        wanted: &Arc<Target>,
        served: &Arc<Target>,
        report: &sesame_apply::ApplyReport,
    ) {
        let (culprits, unbound) = (self.quarantine.culprits(), self.quarantine.unbound());
        let affected = if culprits.is_empty() && unbound.iter().next().is_none() {
            Affected::default()
        } else {
            affected(&wanted.encoded.snapshot(), culprits, unbound, |port| {
                wanted.options.bound(port)
            })
        };
        if affected.refused.is_empty() {
            tracing::info!(
                cause = wanted.cause,
                "Envoy serves the newest configuration"
            );
        } else {
            for refused in &affected.refused {
                let _object = tracing::error_span!("refusal", object = refused.object).entered();
                tracing::error!("rejected: {}; {}", refused.envoy_words, refused.effect);
            }
            tracing::warn!(
                cause = wanted.cause,
                left_out = affected.refused.len(),
                "Envoy serves the newest configuration without the rejected parts"
            );
        }
        self.observed
            .send_modify(|observed| observed.record_accepted(wanted, served, affected, report));
        self.instances.set_files(served.rendered.subscriptions);
        self.keeper.keep(served);
        if self.observed.borrow().draining.is_none() {
            self.handshakes.begin(served);
        }
    }

    /// Makes Envoy reread the unverified key pairs.
    pub(super) fn apply_handshakes(&mut self, unproven: &[Unproven]) {
        let keys: BTreeSet<&str> = unproven.iter().map(|it| it.proof.key.as_str()).collect();
        for key in keys {
            let secret = Subscription::new(XdsKind::Secret, key);
            if let Err(error) = self.applier.place_again(&secret) {
                tracing::warn!(%error, key, "cannot rewrite the file of a key pair");
            }
        }
        let failures = self.handshakes.record(unproven);
        self.observed.send_if_modified(|observed| {
            let changed = observed.unshown != failures;
            if changed {
                for (listener, why) in &failures {
                    tracing::error!(listener, "{why}");
                }
                observed.unshown = failures;
            }
            changed
        });
    }
}

fn outcome_of(published: &Result<Published, ApplyError>) -> ApplyOutcome {
    match published {
        Ok(Published::Accepted { reduced: None, .. }) => ApplyOutcome::Accepted,
        Ok(Published::Accepted { .. }) => ApplyOutcome::Reduced,
        Ok(Published::Refused { .. } | Published::Searching { .. }) => ApplyOutcome::Refused,
        Ok(Published::NotYet { .. }) | Err(_) => ApplyOutcome::Postponed,
    }
}
