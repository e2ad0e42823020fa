//! Receives replies that the first Envoy still sends to a dead second Envoy.
//!
//! An Envoy that cannot send a hot restart reply terminates: immediately if the socket file is
//! missing, or after ten seconds if no process has it open. A late reply must not reach the next
//! Envoy, which would then match all replies to the wrong requests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admin::Admin;
use crate::process::Lineage;
use sesame_host::remove_if_exists;

#[derive(Debug)]
pub(crate) struct Sink {
    _tasks: JoinSet<()>,
    answered: watch::Receiver<bool>,
}

const ANSWER: Duration = Duration::from_secs(4);
/// Number of requests to send. One is not enough, because the main thread handles a connection and
/// its request separately.
const ROUNDS: usize = 3;
/// How long to wait for the rest of a reply after its first message.
const REST: Duration = Duration::from_millis(100);

impl Sink {
    pub(crate) fn open(lineage: Lineage, directory: &Path) -> io::Result<Self> {
        let (answers, answered) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for path in lineage.sockets_of_child(directory) {
            let socket = bind(&path)?;
            let answers = answers.clone();
            tasks.spawn(async move {
                // This call does not request file descriptors, so the kernel closes any descriptors
                // in the message.
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

    /// Waits for late replies from the first Envoy. Envoy's main thread handles hot restart
    /// messages and admin requests in order, so an admin response means that earlier replies have
    /// been sent.
    pub(crate) async fn settled(&mut self, admin: &Admin) {
        let main_thread_caught_up = async {
            for _ in 0..ROUNDS {
                admin.reconnect().await;
                if admin.ready().await.is_err() {
                    // Envoy no longer serves its admin interface, so wait only for the reply.
                    std::future::pending::<()>().await;
                }
            }
        };
        let settled = async {
            tokio::select! {
                // An error means that the reader tasks have ended, so there is nothing to wait for.
                _ = self.answered.wait_for(|answered| *answered) => {}
                () = main_thread_caught_up => {}
            }
        };
        // Ignore a timeout, because the first Envoy may have no reply to send.
        let _ = timeout(ANSWER, settled).await;
        sleep(REST).await;
    }
}

/// Renames the socket into place, so that a socket always exists at the path.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let staged = PathBuf::from(format!("{}n", path.display()));
    remove_if_exists(&staged)?;
    let socket = UnixDatagram::bind(&staged)?;
    fs::rename(staged, path)?;
    Ok(socket)
}
