//! The snapshot engine: turns a source's updates into targets, on one thread. A Gateway is
//! withdrawn only if it is missing from an update that lists all Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sesame_kinds::api::NamespacedName;
use sesame_resolver::ResolvedGateway;
use tokio::sync::watch;

use super::engine::{SourceState, record_busy, report_changes};
use super::spans::EngineTimes;
use super::target::{HostSettings, Origin, Targets, apply_local, keep, render_all};
use sesame_sources::problem::SourceProblem;
use sesame_sources::update::{GatewayRevision, GatewayUpdate, IncompleteRevision, SourceUpdate};

pub(super) struct SnapshotEngine {
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<SourceState>,
    pub(super) times: EngineTimes,
}

impl SnapshotEngine {
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

    pub(super) async fn local_changed(&mut self) {
        self.host.changed().await;
    }

    pub(super) fn apply_local(&self) {
        apply_local(&self.known, &self.host);
    }

    pub(super) fn apply(&mut self, update: SourceUpdate, seen: SystemTime) {
        let SourceUpdate {
            away,
            gateways,
            lists_all,
            problems,
            cause,
            receipts,
        } = update;
        record_busy(&self.known, true);
        self.times.begin_change(seen);
        self.apply_local();
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
        record_busy(&self.known, false);
    }

    fn report(
        &self,
        incomplete: &BTreeMap<NamespacedName, IncompleteRevision>,
        problems: &[SourceProblem],
    ) {
        let known = self.known.borrow();
        for (gateway, now) in incomplete {
            if now.stuck && known.incomplete.get(gateway) != Some(now) {
                tracing::warn!(%gateway, revision = now.revision, "the newest revision is incomplete: {}", now.reason);
            }
        }
        for problem in problems.iter().filter(|p| !known.problems.contains(p)) {
            tracing::warn!(place = problem.file, "{}", problem.message);
        }
    }
}

fn held(why: &str, targets: &Targets) -> String {
    if targets.is_empty() {
        format!("{why}; nothing has been accepted yet")
    } else {
        format!("{why}; the last accepted configuration is served")
    }
}

struct Merged {
    /// One revision for each Gateway, sorted by name.
    revisions: Vec<GatewayRevision>,
    /// Gateways that keep their previous revision.
    kept: BTreeSet<NamespacedName>,
    incomplete: BTreeMap<NamespacedName, IncompleteRevision>,
}

/// A Gateway without a complete revision keeps its previous one.
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
