//! Keeps what Envoy accepted for the next cold start, behind the back of the changes themselves.
//!
//! Writing to disk and syncing it takes as long as it takes; a change never waits for it. When changes come
//! faster than the disk, the newest is kept.

use std::path::PathBuf;
use std::sync::Arc;

use sesame_controller::api::NamespacedName;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::accepted;
use super::wanted::Wanted;

/// A task that writes.
pub(super) struct Keeper {
    newest: watch::Sender<Option<Arc<Wanted>>>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Starts with nothing to keep.
    pub(super) fn start(gateway: NamespacedName, directory: PathBuf) -> Self {
        let (newest, wanted) = watch::channel(None);
        let task = tokio::spawn(run(gateway, directory, wanted));
        Self { newest, task }
    }

    /// Keeps this one, unless a newer one comes first.
    pub(super) fn keep(&self, wanted: &Arc<Wanted>) {
        self.newest.send_replace(Some(Arc::clone(wanted)));
    }

    /// Waits until the newest is kept.
    pub(super) async fn finish(self) {
        drop(self.newest);
        // A panic in the task has been logged by the runtime; there is nothing left to save.
        let _ = self.task.await;
    }
}

async fn run(
    gateway: NamespacedName,
    directory: PathBuf,
    mut newest: watch::Receiver<Option<Arc<Wanted>>>,
) {
    let mut kept = String::new();
    while newest.changed().await.is_ok() {
        let Some(wanted) = newest.borrow_and_update().clone() else {
            continue;
        };
        let (directory, before) = (directory.clone(), std::mem::take(&mut kept));
        let done = tokio::task::spawn_blocking(move || {
            let revision = wanted.revision().to_owned();
            if revision == before {
                return Ok(revision);
            }
            accepted::save(&directory, &wanted).map(|()| revision)
        });
        match done.await {
            Ok(Ok(revision)) => kept = revision,
            Ok(Err(error)) => {
                tracing::error!(%gateway, "the accepted configuration cannot be kept for the next start: {error:#}");
            }
            Err(error) => {
                tracing::error!(%gateway, "keeping the accepted configuration failed: {error}");
            }
        }
    }
}
