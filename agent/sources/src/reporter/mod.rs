//! Writes a host's reports to a cluster: one `GatewayAgent` object per Gateway. Nothing waits for a
//! report, so a slow or unreachable cluster delays only the reports.

mod pace;
mod written;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use sesame_kinds::api::NamespacedName;
use sesame_published::GatewayAgentStatus;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::pace::{ReportPace, SHORTEST};
use self::written::{ReportChange, WriteFailure, WrittenReports};
use crate::cluster::ClusterSettings;
use crate::cluster::backoff::{ServerBackoff, ServerFault, jittered};

/// Default interval between reports while nothing changes.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(60);
/// Time limit for the last reports when the agent stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Provides a host's reports.
pub trait HostReports: Send {
    /// Switches to the current Gateways and settings, and returns the interval between reports
    /// while nothing changes.
    fn follow(&mut self) -> Duration;

    /// Returns one report per Gateway, without the time of writing. `before` contains the last
    /// written reports.
    fn statuses(
        &mut self,
        before: &BTreeMap<NamespacedName, GatewayAgentStatus>,
    ) -> BTreeMap<NamespacedName, GatewayAgentStatus>;

    /// Records that the cluster has accepted a report.
    fn taken(&mut self, gateway: &NamespacedName, status: &GatewayAgentStatus);

    /// Waits until the content of any report may have changed.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits until an unreachable cluster is reachable again. Waits forever if the cluster is
    /// reachable.
    fn back(&mut self) -> impl Future<Output = ()> + Send;
}

/// Handle for the task that writes the reports.
pub struct ReportWriter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ReportWriter {
    /// Starts the task. For each write, the task uses the newest client from the channel.
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

    /// Writes the last reports and ends the task. Gives up if the cluster takes too long.
    pub async fn finish(self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(2 * LAST_TIMEOUT, self.task)
            .await
            .is_err()
        {
            tracing::debug!("cannot report to the cluster that this host is stopping");
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
                // The interval may have become shorter.
                heartbeat.min(now + period * 5 / 4)
            };
            match self.write_reports(due).await {
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
                    // Combine further changes into the same report.
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
                        // After a rejection, wait for the whole backoff delay.
                        () = self.reports.back(), if fault == ServerFault::Unreachable => {}
                        _ = stop.wait_for(|stop| *stop) => break,
                    }
                }
            }
        }
        if let Ok(Err(error)) = tokio::time::timeout(LAST_TIMEOUT, self.write_reports(true)).await {
            let why = error.message;
            tracing::warn!("this host cannot report to the cluster that it is stopping: {why}");
        }
    }

    /// Returns when to report a postponed change, if any.
    async fn write_reports(&mut self, due: bool) -> Result<Option<Instant>, WriteFailure> {
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
