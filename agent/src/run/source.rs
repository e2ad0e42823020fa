//! Starts what a source needs: its watch, and an engine in a thread of its own.

use std::path::PathBuf;

use anyhow::Context as _;
use sesame_gateway_api::resolve::{ResolvedGateway, Resolver};
use tokio::sync::watch;

use super::engine::{Engine, Known, note_polling};
use super::report::SourceReport;
use super::snapshot_engine::SnapshotEngine;
use super::target::HostSettings;
use super::withdrawal::Withdrawal;
#[cfg(feature = "cluster")]
use crate::source::cluster;
use crate::source::last_good::LastGood;
use crate::source::manifests::{Limits, Manifests, tree};
use crate::source::snapshots::{self, SnapshotDirs};
#[cfg(feature = "cluster")]
use crate::source::update::SourceUpdate;
use crate::source::update::Trusted;
use crate::source::watch::{Timing, Watch};

/// Where configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory of Gateway API manifests.
    Manifests(PathBuf),
    /// A directory of snapshots.
    SnapshotDir(PathBuf, Trusted),
    /// A Kubernetes cluster.
    #[cfg(feature = "cluster")]
    Cluster(cluster::Settings),
}

/// What an engine is given.
pub(super) struct Inputs {
    pub(super) resolve: sesame_gateway_api::resolve::Options,
    /// What a directory of manifests may be.
    pub(super) limits: Limits,
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<Known>,
    /// Gateways as they were accepted before this agent started.
    pub(super) accepted: Vec<ResolvedGateway>,
    /// What is to happen when no Gateway is left, where that may be a mistake.
    pub(super) withdrawal: Withdrawal,
}

/// What else a started source has to offer.
pub(super) struct Started {
    /// The way to the API server, of a source that is a cluster.
    #[cfg(feature = "cluster")]
    pub(super) clients: Option<watch::Receiver<Option<kube::Client>>>,
}

impl Source {
    /// What `status` says of it, but for how it is.
    pub(super) fn report(&self) -> SourceReport {
        let nothing = SourceReport::default();
        match self {
            Self::Manifests(dir) => SourceReport {
                kind: "manifests".to_owned(),
                manifests: Some(dir.clone()),
                ..nothing
            },
            Self::SnapshotDir(dir, _) => SourceReport {
                kind: "snapshotDir".to_owned(),
                snapshot_dir: Some(dir.clone()),
                ..nothing
            },
            #[cfg(feature = "cluster")]
            Self::Cluster(settings) => SourceReport {
                kind: "cluster".to_owned(),
                cluster: Some(super::report::ClusterReport {
                    kubeconfig: settings.kubeconfig.clone(),
                    namespace: settings.namespace.clone(),
                    fleet: settings.fleet.clone(),
                    gateways: settings.gateways.iter().map(ToString::to_string).collect(),
                    host: settings.host.clone(),
                }),
                ..nothing
            },
        }
    }

    /// Starts the engine.
    pub(super) fn start(&self, inputs: Inputs) -> anyhow::Result<Started> {
        let Inputs {
            resolve,
            limits,
            host,
            known,
            accepted,
            withdrawal,
        } = inputs;
        match self {
            Self::Manifests(dir) => {
                let last_good = LastGood::new(host.directories.last_good());
                let engine = Engine {
                    manifests: Manifests::with_limits(dir, last_good, limits),
                    resolver: Resolver::default(),
                    of_neighbours: Resolver::default(),
                    resolve,
                    host,
                    known,
                    accepted,
                    found: Vec::new(),
                    withdrawal,
                    runtime: tokio::runtime::Handle::current(),
                };
                let watch = Watch::start(dir, limits, Timing::default(), tree::is_manifest)
                    .context("cannot start watching the manifests")?;
                thread(move || engine.run(watch))?;
            }
            Self::SnapshotDir(dir, trusted) => {
                let engine = SnapshotEngine { host, known };
                let mut dirs = SnapshotDirs::new(dir, trusted.clone());
                let mut watch = Watch::start(dir, limits, Timing::default(), snapshots::is_piece)
                    .context("cannot start watching the snapshots")?;
                thread(move || {
                    engine.restore(accepted);
                    while watch.changes.blocking_recv().is_some() {
                        engine.take(dirs.scan());
                        note_polling(&engine.known, &watch);
                    }
                })?;
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(settings) => {
                let engine = SnapshotEngine { host, known };
                let before = accepted.iter().map(|g| g.gateway.clone()).collect();
                let (supply, mut supplies) = watch::channel(SourceUpdate::default());
                let (client, clients) = watch::channel(None);
                tokio::spawn(cluster::run(settings.clone(), before, supply, client));
                let runtime = tokio::runtime::Handle::current();
                thread(move || {
                    engine.restore(accepted);
                    while runtime.block_on(supplies.changed()).is_ok() {
                        let supply = supplies.borrow_and_update().clone();
                        engine.take(supply);
                    }
                })?;
                return Ok(Started {
                    clients: Some(clients),
                });
            }
        }
        Ok(Started {
            #[cfg(feature = "cluster")]
            clients: None,
        })
    }
}

fn thread(run: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(run)
        .context("cannot start the engine's thread")?;
    Ok(())
}
