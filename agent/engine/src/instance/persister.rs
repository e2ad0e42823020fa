//! Stores accepted states in the background, for the next cold start. A change never waits for the
//! disk. Writes to a full or read-only disk are retried forever.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::accepted;
use crate::observed::Observed;
use crate::target::Target;
use sesame_sources::seal::SealingKeys;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum time between writes if only endpoints change. A cold start can use outdated endpoints.
const GATHER: Duration = Duration::from_secs(1);

pub(super) struct Persister {
    newest: watch::Sender<Option<Arc<Target>>>,
    task: JoinHandle<()>,
}

impl Persister {
    pub(super) fn start(
        directory: PathBuf,
        sealing: Arc<SealingKeys>,
        observed: watch::Sender<Observed>,
    ) -> Self {
        let (newest, wanted) = watch::channel(None);
        let task = tokio::spawn(run(directory, sealing, observed, wanted).in_current_span());
        Self { newest, task }
    }

    pub(super) fn keep(&self, wanted: &Arc<Target>) {
        self.newest.send_replace(Some(Arc::clone(wanted)));
    }

    pub(super) async fn finish(self) {
        drop(self.newest);
        // A panic in the task is already logged.
        let _ = self.task.await;
    }
}

async fn run(
    directory: PathBuf,
    sealing: Arc<SealingKeys>,
    observed: watch::Sender<Observed>,
    mut newest: watch::Receiver<Option<Arc<Target>>>,
) {
    // The revision that was stored last, and its number of keys.
    let mut kept = (String::new(), 0);
    // Digest without endpoints, and time of the last write.
    let mut last: Option<(String, Instant)> = None;
    let mut failed = false;
    loop {
        tokio::select! {
            changed = newest.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(RETRY_INTERVAL), if failed => {}
        }
        let Some(wanted) = newest.borrow_and_update().clone() else {
            continue;
        };
        let (wanted, config) = gathered(&mut newest, wanted, last.as_ref()).await;
        let (directory, before) = (directory.clone(), kept.clone());
        let sealing = Arc::clone(&sealing);
        let done = tokio::task::spawn_blocking(move || {
            let stored = (wanted.revision().to_owned(), wanted.encoded.keys().len());
            let mut revoked = Ok(());
            if stored != before {
                let state = accepted::save(&directory, &wanted, &config, &sealing)?;
                revoked = accepted::revoke_others(&state, &wanted);
            }
            Ok::<_, anyhow::Error>((stored, config, revoked))
        });
        let error = match done.await {
            Ok(Ok((stored, config, revoked))) => {
                // If keys could not be removed, keep the old value, so that the next attempt
                // removes them.
                kept = if revoked.is_ok() { stored } else { kept };
                last = Some((config, Instant::now()));
                revoked.err().map(|error| format!("{error:#}"))
            }
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(error) => Some(error.to_string()),
        };
        failed = error.is_some();
        observed.send_if_modified(|observed| {
            let is_stored = observed.stored == kept.0;
            observed.stored.clone_from(&kept.0);
            let new = observed.unkept != error;
            if new {
                if let Some(error) = &error {
                    tracing::error!(
                        "the accepted configuration cannot be stored for the next start: {error}"
                    );
                } else {
                    tracing::info!("the accepted configuration can be stored again");
                }
                observed.unkept = error;
            }
            new || !is_stored
        });
    }
}

/// Waits for further changes if only endpoints have changed since the last write.
async fn gathered(
    newest: &mut watch::Receiver<Option<Arc<Target>>>,
    mut wanted: Arc<Target>,
    last: Option<&(String, Instant)>,
) -> (Arc<Target>, String) {
    let mut config = wanted.encoded.config_digest();
    if let Some((before, time)) = last
        && *before == config
    {
        let something_else = async {
            while *before == config && newest.changed().await.is_ok() {
                if let Some(newer) = newest.borrow_and_update().clone() {
                    config = newer.encoded.config_digest();
                    wanted = newer;
                }
            }
        };
        // The wait also ends when the persister finishes.
        let _ = timeout_at(*time + GATHER, something_else).await;
    }
    (wanted, config)
}
