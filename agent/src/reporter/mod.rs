//! Writes a host's reports to a cluster: a `GatewayAgent` for each Gateway, when something has changed, and otherwise as
//! often as the settings say.
//!
//! A [`HostReports`] decides the content of a report; this module decides when it is written, and
//! must never change it. Nothing waits for it: a slow or unreachable cluster gets a late report. Of
//! frequent changes only the newest is reported.

mod pace;
mod written;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use sesame_gateway_api::api::NamespacedName;
use sesame_published::GatewayAgentStatus;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::pace::{ReportPace, SHORTEST};
use self::written::{ReportChange, WriteFailure, WrittenReports};
use crate::source::cluster::ClusterSettings;
use crate::source::cluster::backoff::{ServerBackoff, ServerFault, jittered};

/// Time between two reports that no report says.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(60);
/// Time for the last report of an agent that stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// The reports of a host, as they are to be written.
pub trait HostReports: Send {
    /// Follows the Gateways and settings that there are now, and returns the time between two reports while nothing changes.
    fn follow(&mut self) -> Duration;

    /// Returns the report on each Gateway, without the time at which it is written. `before` has those that were written last.
    fn statuses(
        &mut self,
        before: &BTreeMap<NamespacedName, GatewayAgentStatus>,
    ) -> BTreeMap<NamespacedName, GatewayAgentStatus>;

    /// Notes that the cluster has taken a report.
    fn taken(&mut self, gateway: &NamespacedName, status: &GatewayAgentStatus);

    /// Waits until anything that a report is made from may have changed.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits until a cluster that could not be reached can be reached again; for ever if it can be reached.
    fn back(&mut self) -> impl Future<Output = ()> + Send;
}

/// A task that writes reports.
pub struct ReportWriter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ReportWriter {
    /// Starts the task, which reports to where the newest of these clients leads.
    pub fn start(
        settings: &ClusterSettings,
        clients: watch::Receiver<Option<Client>>,
        reports: impl HostReports + 'static,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let report_loop = ReportLoop {
            clients,
            reports,
            written: WrittenReports::new(settings),
            pace: ReportPace::default(),
        };
        Self {
            stop,
            task: tokio::spawn(report_loop.run(stopped)),
        }
    }

    /// Writes a last report, if the cluster answers soon enough.
    pub async fn finish(self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(2 * LAST_TIMEOUT, self.task)
            .await
            .is_err()
        {
            tracing::debug!("the cluster was not told that this host is stopping");
        }
    }
}

struct ReportLoop<R> {
    clients: watch::Receiver<Option<Client>>,
    reports: R,
    written: WrittenReports,
    pace: ReportPace,
}

impl<R: HostReports> ReportLoop<R> {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = ServerBackoff::default();
        let mut heartbeat = Instant::now();
        let mut failing = false;
        loop {
            let period = self.reports.follow();
            let now = Instant::now();
            let due = now >= heartbeat;
            heartbeat = if due {
                now + jittered(period)
            } else {
                // It may have been made shorter.
                heartbeat.min(now + period * 5 / 4)
            };
            match self.tell(due).await {
                Ok(waits) => {
                    backoff.reset();
                    if std::mem::take(&mut failing) {
                        tracing::info!("this host reports to the cluster again");
                    }
                    tokio::select! {
                        () = self.reports.changed() => {}
                        _ = self.clients.changed() => {}
                        () = tokio::time::sleep_until(waits.map_or(heartbeat, |at| at.min(heartbeat))) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                    // Changes of this time are one report.
                    tokio::select! {
                        () = tokio::time::sleep(SHORTEST) => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                }
                Err(WriteFailure { message, fault }) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("this host cannot report to the cluster: {message}");
                    }
                    let pause = tokio::time::sleep(backoff.after(fault));
                    tokio::select! {
                        () = pause => {}
                        // One that refuses is left alone, though it can be reached again.
                        () = self.reports.back(), if fault == ServerFault::Unreachable => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                }
            }
        }
        if let Ok(Err(error)) = tokio::time::timeout(LAST_TIMEOUT, self.tell(true)).await {
            let why = error.message;
            tracing::warn!("this host cannot report to the cluster that it is stopping: {why}");
        }
    }

    /// Writes every report that has changed, or all of them when a heartbeat is `due`. Returns the time at which a change that
    /// was not written may be.
    async fn tell(&mut self, due: bool) -> Result<Option<Instant>, WriteFailure> {
        let Some(client) = self.clients.borrow_and_update().clone() else {
            return Ok(None);
        };
        let statuses = self.reports.statuses(self.written.statuses());
        let now = Instant::now();
        let change = self.written.change_to(&statuses);
        let waits = self.pace.waits_until(change, now).filter(|_| !due);
        if waits.is_some() {
            return Ok(waits);
        }
        let written = &mut self.written;
        written
            .write(client, statuses, due, &mut self.reports)
            .await?;
        if change != ReportChange::None {
            self.pace.wrote(now);
        }
        Ok(None)
    }
}
