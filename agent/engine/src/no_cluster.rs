//! Stub for `cluster` in builds without cluster support. The types here are uninhabited.

use std::sync::Arc;

use sesame_resolver::ResolvedGateway;
use sesame_spans::Spans;
use tokio::sync::watch;

use super::engine::SourceState;
use super::observed::AllObserved;
use super::reload::LiveSettings;
use super::report::ClusterReport;
use super::snapshot_engine::SnapshotEngine;
use sesame_sources::local::RequestedUsage;
use sesame_sources::seal::SealingKeys;

pub(super) use std::convert::Infallible as ClusterSettings;

pub(super) type Clients = ClusterSettings;

#[expect(dead_code, reason = "a cluster reads them")]
pub(super) struct SignerRequest<'a> {
    pub(super) signer: &'a str,
    pub(super) seconds: Option<i32>,
    pub(super) usage: RequestedUsage,
    pub(super) report: &'a (dyn Fn(String) + Send + Sync),
}

#[expect(clippy::unused_async, reason = "the real one waits")]
pub(super) async fn sign(
    clients: &Clients,
    signing: &SignerRequest<'_>,
    _: &str,
) -> Result<String, String> {
    let SignerRequest {
        signer: _,
        seconds: _,
        usage: _,
        report: _,
    } = signing;
    match *clients {}
}

pub(super) struct Reporter(ClusterSettings);

pub(super) fn report(settings: &ClusterSettings) -> ClusterReport {
    match *settings {}
}

pub(super) fn start(
    settings: &ClusterSettings,
    _: SnapshotEngine,
    _: Vec<ResolvedGateway>,
    _: Arc<SealingKeys>,
) -> anyhow::Result<Clients> {
    match *settings {}
}

pub(super) fn start_reporter(
    settings: &ClusterSettings,
    _: watch::Receiver<LiveSettings>,
    _: Clients,
    _: watch::Receiver<SourceState>,
    _: watch::Receiver<AllObserved>,
    _: Spans,
) -> Reporter {
    match *settings {}
}

impl Reporter {
    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(super) async fn finish(self) {
        match self.0 {}
    }
}
