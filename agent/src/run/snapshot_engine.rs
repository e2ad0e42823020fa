//! The engine of snapshots: updates of a source in, targets out. It has one thread, as the engine of manifests has.
//!
//! A Gateway is never withdrawn because a source says nothing: only a source that lists all Gateways, and does
//! not list this one, withdraws it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::ResolvedGateway;
use tokio::sync::watch;

use super::engine::{SourceState, note_busy, report_changes};
use super::spans::EngineTimes;
use super::target::{HostSettings, Origin, Targets, keep, render_all, take_local};
use crate::source::problem::SourceProblem;
use crate::source::update::{GatewayRevision, GatewayUpdate, IncompleteRevision, SourceUpdate};

/// Everything the engine's thread owns.
pub(super) struct SnapshotEngine {
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<SourceState>,
    /// Times of the change that is worked on.
    pub(super) times: EngineTimes,
}

impl SnapshotEngine {
    /// Targets what was accepted before, until the source says something else.
    pub(super) fn restore(&self, accepted: Vec<ResolvedGateway>) {
        let offers: Vec<GatewayRevision> =
            accepted.into_iter().map(GatewayRevision::from).collect();
        if offers.is_empty() {
            return;
        }
        let (nothing, now) = (Targets::new(), Instant::now());
        let gateways = render_all(&offers, &self.host, &nothing, Origin::Accepted, now);
        self.known.send_modify(|known| {
            known.held = Some(held("the source has not been read yet", &gateways));
            known.gateways = gateways;
        });
    }

    /// Waits until local files, or the host's keys of session tickets, have changed.
    pub(super) async fn local_changed(&mut self) {
        self.host.changed().await;
    }

    /// Targets what is wanted now with the newest content of local files and the host's newest keys of session tickets.
    pub(super) fn take_local(&self) {
        take_local(&self.known, &self.host);
    }

    /// Targets what the source says, which was seen to have changed at a time.
    pub(super) fn take(&mut self, update: SourceUpdate, seen: SystemTime) {
        let SourceUpdate {
            away,
            gateways,
            lists_all,
            problems,
            cause,
            receipts,
        } = update;
        note_busy(&self.known, true);
        self.times.take(seen);
        self.take_local();
        let before = self.known.borrow().gateways.clone();
        let Merged {
            revisions,
            kept,
            incomplete,
        } = merge(gateways, lists_all, &before);
        let (origin, now) = (Origin::Source(&cause), Instant::now());
        let mut targets = render_all(&revisions, &self.host, &before, origin, now);
        keep(&kept, &before, &mut targets);
        self.times.rendered(&before, &targets, &receipts, &[]);
        report_changes(&before, &targets);
        self.report(&incomplete, &problems);
        self.known.send_modify(|known| {
            known.available = away.is_none();
            known.held = away.map(|why| held(&why, &targets));
            known.gateways = targets;
            known.incomplete = Arc::new(incomplete);
            known.problems = Arc::new(problems);
        });
        note_busy(&self.known, false);
    }

    /// Logs what is new.
    fn report(
        &self,
        incomplete: &BTreeMap<NamespacedName, IncompleteRevision>,
        problems: &[SourceProblem],
    ) {
        let known = self.known.borrow();
        for (gateway, now) in incomplete {
            if now.stuck && known.incomplete.get(gateway) != Some(now) {
                tracing::warn!(%gateway, revision = now.revision, "the newest revision is not whole: {}", now.reason);
            }
        }
        for problem in problems.iter().filter(|p| !known.problems.contains(p)) {
            tracing::warn!(place = problem.file, "{}", problem.message);
        }
    }
}

/// Returns what it means that the source is away.
fn held(why: &str, targets: &Targets) -> String {
    if targets.is_empty() {
        format!("{why}; nothing has been accepted yet")
    } else {
        format!("{why}; what was accepted last is served")
    }
}

/// The revisions that are to be served after an update.
struct Merged {
    /// One revision for each Gateway, in the order of names.
    revisions: Vec<GatewayRevision>,
    /// Gateways whose revision is the one of before.
    kept: BTreeSet<NamespacedName>,
    /// Newer revisions of which something is missing.
    incomplete: BTreeMap<NamespacedName, IncompleteRevision>,
}

/// Merges an update with what is served: a Gateway without a complete revision keeps the one of before, and so does one that
/// is not in the update, unless that lists all Gateways.
fn merge(
    updates: BTreeMap<NamespacedName, GatewayUpdate>,
    lists_all: bool,
    before: &Targets,
) -> Merged {
    let (mut revisions, mut incomplete) = (BTreeMap::new(), BTreeMap::new());
    let mut kept = BTreeSet::new();
    for (name, update) in updates {
        let GatewayUpdate {
            complete,
            incomplete: newer,
        } = update;
        if let Some(newer) = newer {
            incomplete.insert(name.clone(), newer);
        }
        match complete {
            Some(revision) => {
                revisions.insert(name, revision);
            }
            None => {
                kept.insert(name);
            }
        }
    }
    if !lists_all {
        let unlisted = before.keys().filter(|name| !revisions.contains_key(*name));
        kept.extend(unlisted.cloned());
    }
    for name in &kept {
        if let Some(target) = before.get(name) {
            revisions.insert(name.clone(), target.to_revision(name));
        }
    }
    Merged {
        revisions: revisions.into_values().collect(),
        kept,
        incomplete,
    }
}
