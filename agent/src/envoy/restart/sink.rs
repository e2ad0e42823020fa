//! Sink for answers that a first Envoy still owes to a dead second Envoy.
//!
//! An Envoy that cannot send an answer over the hot restart sockets terminates: immediately if the
//! socket is missing, and after ten seconds if the socket is not open. A first Envoy that was busy
//! while the second died would take down the service. The agent therefore keeps that socket open.
//!
//! If the next second Envoy already has the socket when the answer arrives, it takes the answer as
//! the reply to another question. All later answers are then off by one, and it terminates once it
//! is serving. The next attempt therefore waits until the answer has arrived or is no longer
//! expected.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::envoy::admin::Admin;
use crate::envoy::process::Lineage;
use crate::host::remove_if_exists;

/// Reads from the sockets of a dead Envoy until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    _tasks: JoinSet<()>,
    answered: watch::Receiver<bool>,
}

/// Maximum time for an answer requested before the second Envoy died.
const ANSWER: Duration = Duration::from_secs(4);
/// Number of requests to the thread. More than one, because connecting and requesting are separate
/// events.
const ROUNDS: usize = 3;
/// Time for the remaining messages of an answer.
const REST: Duration = Duration::from_millis(100);

impl Sink {
    /// Opens the sockets of the dead Envoy with place `lineage`.
    pub(crate) fn open(lineage: Lineage, directory: &Path) -> io::Result<Self> {
        let (answers, answered) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for path in lineage.sockets_of_child(directory) {
            let socket = bind(&path)?;
            let answers = answers.clone();
            tasks.spawn(async move {
                // The kernel closes any descriptors in the message, because we do not request them.
                let mut message = vec![0; 1 << 16];
                while let Ok(length) = socket.recv(&mut message).await {
                    tracing::debug!(length, "received an Envoy's answer to a dead one");
                    answers.send_replace(true);
                }
            });
        }
        Ok(Self {
            _tasks: tasks,
            answered,
        })
    }

    /// Waits until the first Envoy has sent the answer that it may owe. The same thread answers the
    /// admin interface, in order, so an answer there means that the earlier one was sent.
    pub(crate) async fn settled(&mut self, admin: &Admin) {
        let came_to_it = async {
            for _ in 0..ROUNDS {
                admin.reconnect().await;
                if admin.ready().await.is_err() {
                    // Envoy has handed over the admin interface, so waiting is the only option.
                    std::future::pending::<()>().await;
                }
            }
        };
        let settled = async {
            tokio::select! {
                // If this fails, no sender is left.
                _ = self.answered.wait_for(|answered| *answered) => {}
                () = came_to_it => {}
            }
        };
        // A timeout is not an error, because Envoy may not owe an answer.
        let _ = timeout(ANSWER, settled).await;
        sleep(REST).await;
    }
}

/// Binds a socket by rename, so that the path always has a socket.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let staged = PathBuf::from(format!("{}n", path.display()));
    remove_if_exists(&staged)?;
    let socket = UnixDatagram::bind(&staged)?;
    fs::rename(staged, path)?;
    Ok(socket)
}
