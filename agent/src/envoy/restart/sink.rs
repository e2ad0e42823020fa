//! Receives replies that the first Envoy still sends to a dead second Envoy.
//!
//! If an Envoy cannot send a reply over the hot restart sockets, it terminates. It does so
//! immediately if the socket is missing, and after ten seconds if no process has the socket open.
//! If the first Envoy was busy while the second one died, this would interrupt the service. The
//! agent therefore keeps the dead Envoy's socket open.
//!
//! If the next second Envoy already has the socket when the reply arrives, it mistakes the reply
//! for one to its own request. All later replies are then off by one, and it terminates once it is
//! serving. The next attempt therefore waits until the reply has arrived or is no longer expected.

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

/// Keeps reading from a dead Envoy's sockets until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    _tasks: JoinSet<()>,
    answered: watch::Receiver<bool>,
}

/// Maximum time to wait for a reply to a request from the dead second Envoy.
const ANSWER: Duration = Duration::from_secs(4);
/// Number of requests to send to the first Envoy's main thread. More than one is needed, because
/// connecting and requesting are separate events.
const ROUNDS: usize = 3;
/// Time allowed for the remaining messages of a reply.
const REST: Duration = Duration::from_millis(100);

impl Sink {
    /// Opens the sockets of the dead Envoy whose place is `lineage`.
    pub(crate) fn open(lineage: Lineage, directory: &Path) -> io::Result<Self> {
        let (answers, answered) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for path in lineage.sockets_of_child(directory) {
            let socket = bind(&path)?;
            let answers = answers.clone();
            tasks.spawn(async move {
                // The kernel closes any descriptors in the message, because this call does not
                // request them.
                let mut message = vec![0; 1 << 16];
                while let Ok(length) = socket.recv(&mut message).await {
                    tracing::debug!(length, "received a reply addressed to a dead Envoy");
                    answers.send_replace(true);
                }
            });
        }
        Ok(Self {
            _tasks: tasks,
            answered,
        })
    }

    /// Waits until the first Envoy has sent the reply that it may owe. The admin interface is
    /// served by the same thread, in order, so a response from there means that the earlier reply
    /// was sent.
    pub(crate) async fn settled(&mut self, admin: &Admin) {
        let came_to_it = async {
            for _ in 0..ROUNDS {
                admin.reconnect().await;
                if admin.ready().await.is_err() {
                    // Envoy has handed over its admin interface, so waiting is the only option.
                    std::future::pending::<()>().await;
                }
            }
        };
        let settled = async {
            tokio::select! {
                // If this fails, there are no more senders.
                _ = self.answered.wait_for(|answered| *answered) => {}
                () = came_to_it => {}
            }
        };
        // A timeout is not an error, because Envoy may not owe a reply.
        let _ = timeout(ANSWER, settled).await;
        sleep(REST).await;
    }
}

/// Binds a socket by rename, so that there is always a socket at the path.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let staged = PathBuf::from(format!("{}n", path.display()));
    remove_if_exists(&staged)?;
    let socket = UnixDatagram::bind(&staged)?;
    fs::rename(staged, path)?;
    Ok(socket)
}
