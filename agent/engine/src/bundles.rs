//! Runs the engine thread for a bundle source.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::engine::{SourceState, record_polling};
use super::snapshot_engine::SnapshotEngine;
use super::source::{EngineInputs, thread};
use super::spans::EngineTimes;
use sesame_sources::bundles::state::{self, BundleState};
use sesame_sources::bundles::{
    self, BundleDirectory, BundleFileState, BundleReport, BundleScan, BundleSettings,
};
use sesame_sources::watch::{Timing, Watch};

pub(super) fn start(settings: &BundleSettings, inputs: EngineInputs) -> anyhow::Result<()> {
    let EngineInputs {
        limits,
        host,
        known,
        accepted,
        // Unused: snapshots are already resolved, and removing a bundle does not withdraw its
        // Gateway.
        resolve: _,
        sealing,
        withdrawal: _,
        spans,
        // Only manifests request certificates.
        acme_dns_hook: _,
    } = inputs;
    let state = BundleState::open(host.directories.state())?.sealed_with(sealing);
    let mut watch = Watch::start(
        &settings.directory,
        limits,
        Timing::default(),
        bundles::is_piece,
    )
    .context("cannot start watching the bundles")?;
    let mut trust = Watch::start(state.root(), limits, Timing::default(), state::is_state)
        .context("cannot start watching the trusted keys")?;
    let mut directory = BundleDirectory::new(settings.clone(), state, &accepted);
    let times = EngineTimes::new(spans);
    let mut engine = SnapshotEngine { host, known, times };
    thread(move |runtime| {
        engine.restore(accepted);
        let mut again: Option<Instant> = None;
        loop {
            let more = runtime.block_on(async {
                let due = again.unwrap_or_else(Instant::now);
                tokio::select! {
                    change = watch.changes.recv() => change.is_some(),
                    change = trust.changes.recv() => change.is_some(),
                    () = engine.local_changed() => true,
                    () = tokio::time::sleep_until(due), if again.is_some() => true,
                }
            });
            if !more {
                return;
            }
            let seen = watch.first_seen();
            let BundleScan {
                update,
                files,
                again: after,
            } = directory.scan();
            again = after.map(|after| Instant::now() + after);
            // Update the target first, so that a reader who sees an accepted bundle also sees its
            // target.
            engine.apply(update, seen);
            publish(&engine.known, files);
            record_polling(&engine.known, &watch);
        }
    })
}

/// Logs each outdated bundle once.
fn publish(known: &watch::Sender<SourceState>, files: Vec<BundleReport>) {
    let before = Arc::clone(&known.borrow().bundles);
    if *before == files {
        return;
    }
    for file in files
        .iter()
        .filter(|one| one.state == BundleFileState::Older)
    {
        let same = |other: &&BundleReport| other.file == file.file && other.digest == file.digest;
        if !before.iter().any(|other| same(&other)) {
            tracing::warn!(
                file = file.file,
                gateway = file.gateway,
                "ignoring a bundle: it {}",
                file.reason
            );
        }
    }
    known.send_modify(|known| known.bundles = Arc::new(files));
}
