//! The source of configuration, which runs its engine on a separate thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use sesame_resolver::{ResolvedGateway, Resolver};
use sesame_spans::Spans;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::bundles;
use super::cluster::{self, Clients};
use super::engine::{Engine, SourceState, record_polling};
use super::orders;
use super::report::SourceReport;
use super::snapshot_engine::SnapshotEngine;
use super::spans::EngineTimes;
use super::target::HostSettings;
use super::withdrawal::Withdrawal;
use sesame_sources::acme::{AcmeCertificates, AcmeHostSettings};
use sesame_sources::bundles::BundleSettings;
use sesame_sources::key_sets::FetchedKeySets;
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::{Manifests, ReadLimits, tree};
use sesame_sources::seal::SealingKeys;
use sesame_sources::snapshots::{self, SnapshotDirs};
use sesame_sources::update::Trusted;
use sesame_sources::watch::{Timing, Watch};

/// A source of configuration.
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory of Gateway API manifests.
    Manifests(PathBuf),
    /// A snapshot directory.
    SnapshotDir(PathBuf, Trusted),
    /// A bundle directory.
    Bundles(BundleSettings),
    /// A Kubernetes cluster.
    Cluster(cluster::ClusterSettings),
}

pub(super) struct EngineInputs {
    pub(super) resolve: sesame_resolver::Options,
    pub(super) limits: ReadLimits,
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<SourceState>,
    /// Configurations that were accepted before this agent started.
    pub(super) accepted: Vec<ResolvedGateway>,
    pub(super) sealing: Arc<SealingKeys>,
    /// Program that changes DNS records for certificate orders.
    pub(super) acme_dns_hook: Option<PathBuf>,
    pub(super) withdrawal: Withdrawal,
    pub(super) spans: Spans,
}

impl Source {
    /// Omits the current state of the source.
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
            Self::Bundles(settings) => SourceReport {
                kind: "bundles".to_owned(),
                bundle_dir: Some(settings.directory.clone()),
                ..nothing
            },
            Self::Cluster(settings) => SourceReport {
                kind: "cluster".to_owned(),
                cluster: Some(cluster::report(settings)),
                ..nothing
            },
        }
    }

    /// Returns the client for the API server, if the source is a cluster.
    pub(super) fn start(&self, inputs: EngineInputs) -> anyhow::Result<Option<Clients>> {
        match self {
            Self::Manifests(dir) => start_manifests(dir, inputs).map(|()| None),
            Self::SnapshotDir(dir, trusted) => {
                start_snapshots(dir, trusted.clone(), inputs).map(|()| None)
            }
            Self::Bundles(settings) => bundles::start(settings, inputs).map(|()| None),
            Self::Cluster(settings) => {
                let engine = SnapshotEngine {
                    host: inputs.host,
                    known: inputs.known,
                    times: EngineTimes::new(inputs.spans),
                };
                cluster::start(settings, engine, inputs.accepted, inputs.sealing).map(Some)
            }
        }
    }
}

fn start_manifests(dir: &Path, inputs: EngineInputs) -> anyhow::Result<()> {
    let EngineInputs {
        limits,
        host,
        sealing,
        acme_dns_hook,
        ..
    } = inputs;
    let (acme, ordering) = AcmeCertificates::load(AcmeHostSettings {
        directory: host.directories.acme(),
        sealing: Arc::clone(&sealing),
        dns_hook: acme_dns_hook,
        sockets: orders::sockets(&host, inputs.known.subscribe()),
    });
    tokio::spawn(ordering);
    let last_good = LastGood::new(host.directories.last_good()).sealed_with(sealing);
    let (key_sets, fetching) = FetchedKeySets::load(host.directories.key_sets());
    tokio::spawn(fetching);
    let engine = Engine {
        manifests: Manifests::with_limits(dir, last_good, limits),
        key_sets,
        acme,
        resolver: Resolver::default(),
        resolve: inputs.resolve,
        host,
        known: inputs.known,
        accepted: inputs.accepted,
        found: Vec::new(),
        withdrawal: inputs.withdrawal,
        times: EngineTimes::new(inputs.spans),
    };
    let watch = Watch::start(dir, limits, Timing::default(), tree::is_manifest)
        .context("cannot start watching the manifests")?;
    thread(move |runtime| engine.run(watch, runtime))
}

fn start_snapshots(dir: &Path, trusted: Trusted, inputs: EngineInputs) -> anyhow::Result<()> {
    // Snapshots are already resolved, and an empty snapshot directory does not withdraw Gateways.
    let EngineInputs {
        limits,
        host,
        known,
        accepted,
        spans,
        ..
    } = inputs;
    let times = EngineTimes::new(spans);
    let mut engine = SnapshotEngine { host, known, times };
    let mut dirs = SnapshotDirs::new(dir, trusted);
    let mut watch = Watch::start(dir, limits, Timing::default(), snapshots::is_piece)
        .context("cannot start watching the snapshots")?;
    thread(move |runtime| {
        engine.restore(accepted);
        loop {
            let scan = runtime.block_on(async {
                tokio::select! {
                    change = watch.changes.recv() => change.map(|_| true),
                    () = engine.local_changed() => Some(false),
                }
            });
            match scan {
                Some(true) => {
                    let seen = watch.first_seen();
                    engine.apply(dirs.scan(), seen);
                    record_polling(&engine.known, &watch);
                }
                Some(false) => engine.apply_local(),
                None => return,
            }
        }
    })
}

/// The agent's runtime shuts down before the engine, and timers panic once their runtime has shut
/// down. So the engine uses a separate runtime.
pub(super) fn thread(run: impl FnOnce(&Runtime) + Send + 'static) -> anyhow::Result<()> {
    let (started, outcome) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            match runtime {
                Ok(runtime) => {
                    // The caller waits for this message.
                    let _ = started.send(Ok(()));
                    run(&runtime);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })
        .context("cannot start the engine's thread")?;
    let outcome = outcome.recv().context("the engine's thread ended")?;
    outcome.context("cannot start the engine's timers")
}
