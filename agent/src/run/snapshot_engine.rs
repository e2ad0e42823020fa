//! The engine of snapshots: what a source hands over in, what each Gateway wants out. One thread, as for manifests.
//!
//! What is served is never taken away because a source says nothing: only a source that lists all it has, and does
//! not list a Gateway, takes that Gateway away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::ResolvedGateway;
use tokio::sync::watch;

use super::engine::{Known, report_changes};
use super::report::ProblemReport;
use super::target::{HostSettings, Origin, Targets, render_all};
use crate::source::update::{GatewayRevision, GatewayUpdate, IncompleteRevision, SourceUpdate};

/// Everything the engine's thread owns.
pub(super) struct SnapshotEngine {
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<Known>,
}

impl SnapshotEngine {
    /// Wants what was accepted before, until the source says otherwise.
    pub(super) fn restore(&self, accepted: Vec<ResolvedGateway>) {
        let offers: Vec<GatewayRevision> =
            accepted.into_iter().map(GatewayRevision::from).collect();
        let gateways = render_all(&offers, &self.host, &Targets::new(), Origin::Accepted);
        self.known.send_modify(|known| {
            known.gateways = gateways;
            known.held = Some(
                "the source has not been read yet; what was accepted last is served".to_owned(),
            );
        });
    }

    /// Wants what the source hands over.
    pub(super) fn take(&self, supply: SourceUpdate) {
        let SourceUpdate {
            away,
            gateways,
            lists_all,
            problems,
            cause,
        } = supply;
        let before = self.known.borrow().gateways.clone();
        let mut awaited: BTreeMap<NamespacedName, IncompleteRevision> = BTreeMap::new();
        let mut offers: BTreeMap<NamespacedName, GatewayRevision> = BTreeMap::new();
        let mut kept: BTreeSet<NamespacedName> = BTreeSet::new();
        for (name, supplied) in gateways {
            let GatewayUpdate {
                complete,
                awaited: waiting,
            } = supplied;
            if let Some(waiting) = waiting {
                awaited.insert(name.clone(), waiting);
            }
            match complete {
                Some(revision) => {
                    offers.insert(name, revision);
                }
                None => {
                    kept.insert(name);
                }
            }
        }
        if !lists_all {
            kept.extend(before.keys().filter(|n| !offers.contains_key(*n)).cloned());
        }
        for name in &kept {
            if let Some(wanted) = before.get(name) {
                let offer = GatewayRevision {
                    gateway: name.clone(),
                    packed: Arc::clone(&wanted.packed),
                    snapshot: None,
                    manifest_revision: wanted.manifest_revision.clone(),
                };
                offers.insert(name.clone(), offer);
            }
        }
        let offers: Vec<GatewayRevision> = offers.into_values().collect();
        let mut gateways = render_all(&offers, &self.host, &before, Origin::Source(&cause));
        for name in &kept {
            // Of what was accepted before the start nothing newer is known.
            if let (Some(old), Some(new)) = (before.get(name), gateways.get_mut(name))
                && old.assignment == new.assignment
            {
                *new = Arc::clone(old);
            }
        }
        report_changes(&before, &gateways);
        let problems: Vec<ProblemReport> = problems.iter().map(ProblemReport::from).collect();
        self.report(&awaited, &problems);
        self.known.send_modify(|known| {
            known.gateways = gateways;
            known.available = away.is_none();
            known.held = away.map(|why| format!("{why}; what was accepted last is served"));
            known.awaited = Arc::new(awaited);
            known.problems = Arc::new(problems);
        });
    }

    /// Logs what was not so before.
    fn report(
        &self,
        awaited: &BTreeMap<NamespacedName, IncompleteRevision>,
        problems: &[ProblemReport],
    ) {
        let known = self.known.borrow();
        for (gateway, now) in awaited {
            if now.stuck && known.awaited.get(gateway) != Some(now) {
                tracing::warn!(%gateway, revision = now.revision, "the newest revision is not whole: {}", now.reason);
            }
        }
        for problem in problems.iter().filter(|p| !known.problems.contains(p)) {
            tracing::warn!(place = problem.file, "{}", problem.message);
        }
    }
}
