//! Stands in for `cluster` in an agent that is built without it: there are no values of these types, so nothing here runs.

use sesame_gateway_api::resolve::ResolvedGateway;
use tokio::sync::watch;

use super::engine::SourceState;
use super::observed::AllObserved;
use super::reload::LiveSettings;
use super::report::ClusterReport;
use super::snapshot_engine::SnapshotEngine;

/// No cluster.
pub(super) use std::convert::Infallible as ClusterSettings;

/// No way to a cluster.
pub(super) type Clients = ClusterSettings;

/// Nobody who reports to a cluster.
pub(super) struct Reporter(ClusterSettings);

pub(super) fn report(settings: &ClusterSettings) -> ClusterReport {
    match *settings {}
}

pub(super) fn start(
    settings: &ClusterSettings,
    _: SnapshotEngine,
    _: Vec<ResolvedGateway>,
) -> anyhow::Result<Clients> {
    match *settings {}
}

impl Reporter {
    pub(super) fn start(
        settings: &ClusterSettings,
        _: watch::Receiver<LiveSettings>,
        _: Clients,
        _: watch::Receiver<SourceState>,
        _: watch::Receiver<AllObserved>,
    ) -> Self {
        match *settings {}
    }

    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(super) async fn finish(self) {
        match self.0 {}
    }
}
