//! Input to a transaction, and errors that can prevent the transaction.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::plan::PlanError;
use crate::host::reserve::LackingInstances;
use sesame_render::Rendered;

/// Error that prevents a transaction. The files are as they were before the transaction, unless
/// restoring them failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The desired state is inconsistent.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The transaction would remove all listeners, and `may_empty` is not set. Envoy treats an
    /// empty file as a request to remove everything.
    #[error("refusing to remove all {count} listeners at once; confirm that this is intended")]
    Empties {
        /// Number of listeners that are currently on disk.
        count: usize,
    },
    /// Too few inotify instances are available for the new files, so Envoy would abort.
    #[error("Envoy cannot watch the new files: {0}")]
    Watches(#[from] LackingInstances),
    /// A file could not be written, read or restored.
    #[error("{action} below {root}: {source}", root = .root.display())]
    Io {
        /// Operation that failed, such as `writing a file`.
        action: &'static str,
        /// Root directory of Envoy's files.
        root: PathBuf,
        /// Error reported by the operating system.
        source: io::Error,
    },
}

/// Desired state of Envoy.
#[derive(Clone, Copy)]
pub struct Desired<'a> {
    /// All resources to serve.
    pub rendered: &'a Rendered,
    /// Expected serial number (in hexadecimal) of the leaf certificate, by secret name.
    pub serials: &'a BTreeMap<String, String>,
    /// True if the transaction is allowed to remove all listeners.
    pub may_empty: bool,
}

/// Leftovers from an earlier agent, found when the files were opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of changes undone because they belonged to an interrupted transaction.
    pub undone: usize,
    /// Files that were removed because they are damaged or were not written by an agent.
    pub junk: Vec<PathBuf>,
}
