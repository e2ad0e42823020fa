//! Taking the answers that a first Envoy still has for a second one that is dead.
//!
//! An Envoy that cannot send an answer over the sockets of a hot restart ends itself: at once if there is no socket,
//! after ten seconds if nobody has it open. A first one that was busy while the second died would so take the service
//! down. Therefore somebody has to have that socket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixDatagram;
use tokio::task::JoinHandle;

use super::Lineage;

/// Reads the sockets of an Envoy that has ended, until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    tasks: Vec<JoinHandle<()>>,
}

impl Sink {
    /// Takes the place of the Envoy that was to be `lineage`.
    pub(crate) fn open(lineage: Lineage, directory: &Path) -> io::Result<Self> {
        let mut sink = Self { tasks: Vec::new() };
        for path in lineage.sockets_of_child(directory) {
            let socket = bind(&path)?;
            sink.tasks.push(tokio::spawn(async move {
                // What comes with a message is closed by the kernel, because it is not asked for.
                let mut message = vec![0; 1 << 16];
                while let Ok(length) = socket.recv(&mut message).await {
                    tracing::info!(
                        length,
                        "the Envoy that serves has answered one that is dead"
                    );
                }
            }));
        }
        Ok(sink)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The path is never without a socket.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let staged = PathBuf::from(format!("{}n", path.display()));
    match fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(&staged)?;
    fs::rename(staged, path)?;
    Ok(socket)
}
