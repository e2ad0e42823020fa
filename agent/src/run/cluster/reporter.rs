//! Reports to the cluster what this host serves: a `GatewayAgent` for each Gateway, written when something has changed, and
//! otherwise once a minute, or as often as the settings say.
//!
//! Nothing waits for it: a cluster that is slow or cannot be reached gets a late report. Of frequent changes only the
//! newest is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use sesame_gateway_api::api::NamespacedName;
use sesame_published::names::{FLEET_LABEL, GATEWAY_LABEL, agent_name, gateway_id};
use sesame_published::{GatewayAgent, GatewayAgentStatus, STATUS_MANAGER};
use sesame_spans::Spans;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Clients;
use super::host_status::{HostInventory, host_status, unserved_status, whole_seconds};
use crate::host::limits;
use crate::run::addresses::host as host_addresses;
use crate::run::engine::SourceState;
use crate::run::observed::AllObserved;
use crate::run::reload::LiveSettings;
use crate::run::report::compose::gateway_report;
use crate::run::spans::ReportSpans;
use crate::source::cluster::backoff::{Backoff, jittered};
use crate::source::cluster::{ClusterSettings, describe_error, within};

/// Field manager of the spec.
const SPEC_MANAGER: &str = "sesame-agent";
/// Time between two reports that no report says.
const DEFAULT_PERIOD: Duration = Duration::from_secs(60);
/// Time in which changes are gathered into one report.
const GATHER: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the last report of an agent that stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// A task that writes reports.
pub(in crate::run) struct Reporter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Reporter {
    pub(in crate::run) fn start(
        settings: &ClusterSettings,
        mut live: watch::Receiver<LiveSettings>,
        clients: Clients,
        known: watch::Receiver<SourceState>,
        observed: watch::Receiver<AllObserved>,
        spans: Spans,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let report_loop = ReportLoop {
            settings: settings.clone(),
            clients,
            known,
            all: observed,
            followed: BTreeMap::new(),
            told: BTreeMap::new(),
            spans: ReportSpans::new(spans),
            host: HostInventory {
                addresses: reported(&mut live),
                zone: settings.zone.clone(),
                cores: limits::cores(),
                memory_mib: limits::memory() >> 20,
                report_seconds: told_period(&live),
            },
            live,
        };
        Self {
            stop,
            task: tokio::spawn(report_loop.run(stopped)),
        }
    }

    /// Writes a last report, if the cluster answers soon enough.
    pub(in crate::run) async fn finish(self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(2 * LAST_TIMEOUT, self.task)
            .await
            .is_err()
        {
            tracing::debug!("the cluster was not told that this host is stopping");
        }
    }
}

/// Returns the addresses where clients reach this host, by the settings that there are now.
fn reported(live: &mut watch::Receiver<LiveSettings>) -> Vec<String> {
    let told = live.borrow_and_update().report_addresses.clone();
    let usable = host_addresses::usable(&told).into_iter();
    usable.map(|ip| ip.to_string()).collect()
}

/// Returns the seconds between two reports, if they have to be told.
fn told_period(live: &watch::Receiver<LiveSettings>) -> Option<u32> {
    let period = live.borrow().report_every;
    let seconds = (period != DEFAULT_PERIOD).then_some(period.as_secs());
    seconds.and_then(|seconds| u32::try_from(seconds).ok())
}

/// The report that was written last.
struct WrittenReport {
    status: GatewayAgentStatus,
    /// True if the cluster has taken it.
    heard: bool,
}

struct ReportLoop {
    settings: ClusterSettings,
    clients: Clients,
    known: watch::Receiver<SourceState>,
    all: watch::Receiver<AllObserved>,
    /// Receivers of its own, which remember what was looked at.
    followed: AllObserved,
    told: BTreeMap<NamespacedName, WrittenReport>,
    spans: ReportSpans,
    live: watch::Receiver<LiveSettings>,
    host: HostInventory,
}

impl ReportLoop {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = Backoff::default();
        let mut heartbeat = Instant::now();
        let mut failing = false;
        loop {
            self.follow();
            let now = Instant::now();
            let due = now >= heartbeat;
            let period = self.live.borrow().report_every;
            heartbeat = if due {
                now + jittered(period)
            } else {
                // It may have been made shorter.
                heartbeat.min(now + period * 5 / 4)
            };
            match self.tell(due).await {
                Ok(()) => {
                    backoff.reset();
                    if std::mem::take(&mut failing) {
                        tracing::info!("this host reports to the cluster again");
                    }
                    tokio::select! {
                        () = self.changed() => {}
                        () = tokio::time::sleep_until(heartbeat) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                    tokio::select! {
                        () = tokio::time::sleep(GATHER) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("this host cannot report to the cluster: {error}");
                    }
                    tokio::select! {
                        () = tokio::time::sleep(backoff.next()) => {}
                        () = self.back() => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                }
            }
        }
        if let Ok(Err(error)) = tokio::time::timeout(LAST_TIMEOUT, self.tell(true)).await {
            tracing::warn!("this host cannot report to the cluster that it is stopping: {error}");
        }
    }

    /// Follows the Gateways that there are now.
    fn follow(&mut self) {
        if self.live.has_changed().unwrap_or(false) {
            self.host.addresses = reported(&mut self.live);
            self.host.report_seconds = told_period(&self.live);
        }
        let all = self.all.borrow_and_update();
        self.followed.retain(|name, followed| {
            all.get(name)
                .is_some_and(|observed| observed.same_channel(followed))
        });
        for (name, observed) in all.iter() {
            if !self.followed.contains_key(name) {
                self.followed.insert(name.clone(), observed.clone());
            }
        }
    }

    /// Waits until anything that a report is made from may have changed.
    async fn changed(&mut self) {
        let observed = self.followed.values_mut().map(|observed| {
            Box::pin(async {
                if observed.changed().await.is_err() {
                    // The instance has ended; the list says whether there is another.
                    std::future::pending::<()>().await;
                }
            })
        });
        let any: Vec<_> = observed.collect();
        let any = async {
            if any.is_empty() {
                std::future::pending::<()>().await;
            }
            futures::future::select_all(any).await;
        };
        // Marked as seen when the loop follows it.
        let mut live = self.live.clone();
        let newer = async {
            if live.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = any => {}
            _ = self.known.changed() => {}
            () = newer => {}
            _ = self.all.changed() => {}
            _ = self.clients.changed() => {}
        }
    }

    /// Waits until a cluster that could not be reached can be reached again.
    async fn back(&mut self) {
        let away = !self.known.borrow().available;
        if !away || self.known.wait_for(|known| known.available).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Writes every report that has changed, or all of them when a heartbeat is `due`.
    async fn tell(&mut self, due: bool) -> Result<(), String> {
        let Some(client) = self.clients.borrow_and_update().clone() else {
            return Ok(());
        };
        let api: Api<GatewayAgent> = Api::namespaced(client, &self.settings.namespace);
        let statuses = self.statuses();
        let there: BTreeSet<NamespacedName> = statuses.keys().cloned().collect();
        let mut outcome = Ok(());
        for (gateway, status) in statuses {
            let told = self.told.get(&gateway);
            if !due && told.is_some_and(|told| told.heard && told.status == status) {
                continue;
            }
            let written = self.write(&api, &gateway, &status).await;
            let heard = written.is_ok();
            if heard {
                self.tell_spans(&gateway, &status);
            }
            // A report that is refused does not keep back another.
            outcome = outcome.and(written);
            if heard || self.told.contains_key(&gateway) {
                self.told.insert(gateway, WrittenReport { status, heard });
            }
        }
        let gone: Vec<NamespacedName> = self
            .told
            .keys()
            .filter(|gateway| !there.contains(*gateway))
            .cloned()
            .collect();
        for gateway in gone {
            let forgotten = self.forget(&api, &gateway).await;
            if forgotten.is_ok() {
                self.told.remove(&gateway);
            }
            outcome = outcome.and(forgotten);
        }
        outcome
    }

    /// Tells the collector that the cluster has taken a report, if the target that it is of is still the newest.
    fn tell_spans(&mut self, gateway: &NamespacedName, status: &GatewayAgentStatus) {
        let Some(observed) = self.followed.get(gateway) else {
            return;
        };
        let observed = observed.borrow();
        if let (Some(target), Some(at)) = (&observed.applied_for, observed.applied_at)
            && !status.applied_revision.is_empty()
            && target.told_revision().starts_with(&status.applied_revision)
        {
            self.spans.tell(target, at.into());
        }
    }

    fn statuses(&mut self) -> BTreeMap<NamespacedName, GatewayAgentStatus> {
        let known = self.known.borrow_and_update().clone();
        let mut statuses = BTreeMap::new();
        for (gateway, observed) in &mut self.followed {
            let observed = observed.borrow_and_update().clone();
            let report = gateway_report(gateway, &observed, &known);
            let before = self.told.get(gateway).map(|told| &told.status);
            let status = host_status(&report, &observed, &self.host, before);
            statuses.insert(gateway.clone(), status);
        }
        for (gateway, incomplete) in known.incomplete.iter() {
            let unserved = || unserved_status(incomplete, &self.host);
            statuses.entry(gateway.clone()).or_insert_with(unserved);
        }
        statuses
    }

    async fn write(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
        status: &GatewayAgentStatus,
    ) -> Result<(), String> {
        let name = agent_name(gateway, &self.settings.host);
        let status = serde_json::json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "GatewayAgent",
            "status": GatewayAgentStatus { heartbeat: whole_seconds(Timestamp::now()), ..status.clone() },
        });
        let known = self.told.contains_key(gateway);
        let written = async {
            if !known {
                self.write_spec(api, gateway, &name).await?;
            }
            match write_status(api, &name, &status).await {
                Err(kube::Error::Api(error)) if error.code == 404 && known => {
                    self.write_spec(api, gateway, &name).await?;
                    write_status(api, &name, &status).await
                }
                result => result,
            }
        };
        written.await.map_err(|error| failed(&name, &error))
    }

    async fn write_spec(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
        name: &str,
    ) -> kube::Result<()> {
        let object = serde_json::json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "GatewayAgent",
            "metadata": {
                "name": name,
                "labels": {
                    GATEWAY_LABEL: gateway_id(gateway),
                    FLEET_LABEL: self.settings.fleet,
                },
            },
            "spec": {
                "gateway": gateway.to_string(),
                "host": self.settings.host,
                "fleet": self.settings.fleet,
            },
        });
        let params = PatchParams::apply(SPEC_MANAGER).force();
        let patch = Patch::Apply(&object);
        let written = within(TIMEOUT, api.patch(name, &params, &patch)).await;
        written.map(|_| ())
    }

    /// Deletes the report of a Gateway that was withdrawn.
    async fn forget(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
    ) -> Result<(), String> {
        let name = agent_name(gateway, &self.settings.host);
        match within(TIMEOUT, api.delete(&name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            // Not allowed, or gone already: the controller collects reports that nobody updates.
            Err(kube::Error::Api(error)) if matches!(error.code, 403 | 404) => Ok(()),
            Err(error) => Err(failed(&name, &error)),
        }
    }
}

async fn write_status(
    api: &Api<GatewayAgent>,
    name: &str,
    status: &serde_json::Value,
) -> kube::Result<()> {
    let params = PatchParams::apply(STATUS_MANAGER).force();
    let patch = Patch::Apply(status);
    let written = within(TIMEOUT, api.patch_status(name, &params, &patch)).await;
    written.map(|_| ())
}

fn failed(name: &str, error: &kube::Error) -> String {
    format!("GatewayAgent {name}: {}", describe_error(error))
}
