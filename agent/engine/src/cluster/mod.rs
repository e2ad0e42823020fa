//! Runs the engine that follows the cluster, and reports this host's status to the cluster.

mod host_reports;
mod host_status;
mod renewal;
mod signing;

use std::sync::Arc;
use std::time::SystemTime;

use kube::Client;
use sesame_resolver::ResolvedGateway;
use tokio::sync::watch;

pub(super) use sesame_sources::cluster::ClusterSettings;

pub(super) use self::host_reports::start_reporter;
pub(super) use self::signing::{SignerRequest, sign};
use super::report::ClusterReport;
use super::snapshot_engine::SnapshotEngine;
use super::source::thread;
use sesame_sources::cluster;
use sesame_sources::cluster::stored_token::StoredToken;
pub(super) use sesame_sources::reporter::ReportWriter as Reporter;
use sesame_sources::seal::SealingKeys;
use sesame_sources::update::SourceUpdate;

/// `None` until the first client has been created.
pub(super) type Clients = watch::Receiver<Option<Client>>;

pub(super) fn report(settings: &ClusterSettings) -> ClusterReport {
    ClusterReport {
        kubeconfig: settings.kubeconfig.clone(),
        namespace: settings.namespace.clone(),
        fleet: settings.fleet.clone(),
        gateways: settings.gateways.iter().map(ToString::to_string).collect(),
        host: settings.host.clone(),
    }
}

pub(super) fn start(
    settings: &ClusterSettings,
    mut engine: SnapshotEngine,
    accepted: Vec<ResolvedGateway>,
    sealing: Arc<SealingKeys>,
) -> anyhow::Result<Clients> {
    let stored = StoredToken::of_agent(engine.host.directories.runtime(), sealing);
    let settings = ClusterSettings {
        stored: Some(stored.clone()),
        ..settings.clone()
    };
    if let Some(kubeconfig) = &settings.kubeconfig {
        renewal::reseal(kubeconfig, &stored);
    }
    let before = accepted.iter().map(|g| g.gateway.clone()).collect();
    let (sender, mut updates) = watch::channel(SourceUpdate::default());
    let (client, clients) = watch::channel(None);
    tokio::spawn(cluster::run(settings.clone(), before, sender, client));
    if let Some(kubeconfig) = settings.kubeconfig {
        tokio::spawn(renewal::renew(kubeconfig, stored, clients.clone()));
    }
    thread(move |runtime| {
        engine.restore(accepted);
        loop {
            let from_source = runtime.block_on(async {
                tokio::select! {
                    changed = updates.changed() => changed.ok().map(|()| true),
                    () = engine.local_changed() => Some(false),
                }
            });
            match from_source {
                Some(true) => {
                    let update = updates.borrow_and_update().clone();
                    engine.apply(update, SystemTime::now());
                }
                Some(false) => engine.apply_local(),
                None => return,
            }
        }
    })?;
    Ok(clients)
}
