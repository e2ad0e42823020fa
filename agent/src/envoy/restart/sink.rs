//! Sink for the answers that a first Envoy still has for a second one that is dead.
//!
//! An Envoy that cannot send an answer over the sockets of a hot restart ends itself: at once if there is no socket,
//! after ten seconds if nobody has it open. A first one that was busy while the second died would so take the service
//! down. Therefore somebody has to have that socket.
//!
//! An answer that comes when the next second Envoy has the socket is taken for an answer to its own question; everything
//! after that is off by one, and it ends itself once it serves. So the next attempt waits until the answer is here, or
//! can be taken not to come.

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
use crate::host::remove_if_there;

/// Reads the sockets of an Envoy that has ended, until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    _tasks: JoinSet<()>,
    answered: watch::Receiver<bool>,
}

/// Time that an answer may take that was asked for before the second Envoy died.
const ANSWER: Duration = Duration::from_secs(4);
/// Number of times that the thread is asked: connecting and asking are separate events.
const ROUNDS: usize = 3;
/// Time for the rest of an answer that comes in several messages.
const REST: Duration = Duration::from_millis(100);

impl Sink {
    /// Takes the place of the Envoy that was to be `lineage`.
    pub(crate) fn open(lineage: Lineage, directory: &Path) -> io::Result<Self> {
        let (answers, answered) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for path in lineage.sockets_of_child(directory) {
            let socket = bind(&path)?;
            let answers = answers.clone();
            tasks.spawn(async move {
                // What comes with a message is closed by the kernel, because it is not asked for.
                let mut message = vec![0; 1 << 16];
                while let Ok(length) = socket.recv(&mut message).await {
                    tracing::debug!(length, "an Envoy has answered one that is dead");
                    answers.send_replace(true);
                }
            });
        }
        Ok(Self {
            _tasks: tasks,
            answered,
        })
    }

    /// Waits until the first Envoy has given the answer that it may owe. The thread that gives it is the one that
    /// answers the admin interface: if it does that, one thing after the other, it has come to the rest as well.
    pub(crate) async fn settled(&mut self, admin: &Admin) {
        let came_to_it = async {
            for _ in 0..ROUNDS {
                admin.reconnect().await;
                if admin.ready().await.is_err() {
                    // It has given the admin interface away: there is only waiting.
                    std::future::pending::<()>().await;
                }
            }
        };
        let settled = async {
            tokio::select! {
                // Nobody is left who could tell if this fails.
                _ = self.answered.wait_for(|answered| *answered) => {}
                () = came_to_it => {}
            }
        };
        // No error: none may be owed.
        let _ = timeout(ANSWER, settled).await;
        sleep(REST).await;
    }
}

/// Binds a socket so that the path is never without one.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let staged = PathBuf::from(format!("{}n", path.display()));
    remove_if_there(&staged)?;
    let socket = UnixDatagram::bind(&staged)?;
    fs::rename(staged, path)?;
    Ok(socket)
}
