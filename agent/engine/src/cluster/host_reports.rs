//! Reports this host's status to the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use sesame_kinds::api::NamespacedName;
use sesame_published::GatewayAgentStatus;
use sesame_spans::Spans;
use tokio::sync::watch;

use super::Clients;
use super::host_status::{HostInventory, host_status, unserved_status};
use crate::addresses::host as host_addresses;
use crate::engine::SourceState;
use crate::following::FollowedInstances;
use crate::observed::AllObserved;
use crate::reload::LiveSettings;
use crate::report::compose::gateway_report;
use crate::spans::ReportSpans;
use sesame_host::limits;
use sesame_sources::cluster::ClusterSettings;
use sesame_sources::reporter::{DEFAULT_PERIOD, HostReports, ReportWriter};

pub(crate) fn start_reporter(
    settings: &ClusterSettings,
    mut live: watch::Receiver<LiveSettings>,
    clients: Clients,
    known: watch::Receiver<SourceState>,
    observed: watch::Receiver<AllObserved>,
    spans: Spans,
) -> ReportWriter {
    let reports = ObservedReports {
        known,
        followed: FollowedInstances::new(observed),
        spans: ReportSpans::new(spans),
        host: HostInventory {
            addresses: reported(&mut live),
            zone: settings.zone.clone(),
            cores: limits::cores(),
            memory_mib: limits::memory() >> 20,
            report_seconds: reported_period(&live),
        },
        live,
    };
    ReportWriter::start(settings, clients, reports)
}

fn reported(live: &mut watch::Receiver<LiveSettings>) -> Vec<String> {
    let addresses = live.borrow_and_update().report_addresses.clone();
    let usable = host_addresses::usable(&addresses).into_iter();
    usable.map(|ip| ip.to_string()).collect()
}

/// Returns `None` for the default.
fn reported_period(live: &watch::Receiver<LiveSettings>) -> Option<u32> {
    let period = live.borrow().report_every;
    let seconds = (period != DEFAULT_PERIOD).then_some(period.as_secs());
    seconds.and_then(|seconds| u32::try_from(seconds).ok())
}

struct ObservedReports {
    known: watch::Receiver<SourceState>,
    followed: FollowedInstances,
    spans: ReportSpans,
    live: watch::Receiver<LiveSettings>,
    host: HostInventory,
}

impl HostReports for ObservedReports {
    fn follow(&mut self) -> Duration {
        if self.live.has_changed().unwrap_or(false) {
            self.host.addresses = reported(&mut self.live);
            self.host.report_seconds = reported_period(&self.live);
        }
        self.followed.follow();
        self.live.borrow().report_every
    }

    fn statuses(
        &mut self,
        before: &BTreeMap<NamespacedName, GatewayAgentStatus>,
    ) -> BTreeMap<NamespacedName, GatewayAgentStatus> {
        let known = self.known.borrow_and_update().clone();
        let mut statuses = BTreeMap::new();
        for (gateway, observed) in self.followed.read_all() {
            let report = gateway_report(gateway, &observed, &known);
            let status = host_status(&report, &observed, &self.host, before.get(gateway));
            statuses.insert(gateway.clone(), status);
        }
        for (gateway, incomplete) in known.incomplete.iter() {
            let unserved = || unserved_status(incomplete, &self.host);
            statuses.entry(gateway.clone()).or_insert_with(unserved);
        }
        statuses
    }

    /// Exports the span unless the instance has applied another revision since this status.
    fn taken(&mut self, gateway: &NamespacedName, status: &GatewayAgentStatus) {
        let Some(observed) = self.followed.newest(gateway) else {
            return;
        };
        if let (Some(target), Some(at)) = (&observed.applied_for, observed.applied_at)
            && !status.applied_revision.is_empty()
            && target
                .reported_revision()
                .starts_with(&status.applied_revision)
        {
            self.spans.export(target, at.into());
        }
    }

    async fn changed(&mut self) {
        // Only `follow` may mark the change as seen.
        let mut live = self.live.clone();
        let newer = async {
            if live.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.followed.changed() => {}
            _ = self.known.changed() => {}
            () = newer => {}
        }
    }

    async fn back(&mut self) {
        let away = !self.known.borrow().available;
        if !away || self.known.wait_for(|known| known.available).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
