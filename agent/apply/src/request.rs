//! Input to a transaction, and errors that can prevent it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::plan::PlanError;
use sesame_host::reserve::LackingInstances;
use sesame_render::Rendered;

/// Error that prevents a transaction. The files are unchanged, unless restoring them failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The desired state is inconsistent.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The transaction would remove all listeners, and `may_empty` is not set.
    #[error("refusing to remove all {count} listeners at once; confirm that this is intended")]
    Empties {
        /// Number of listeners on disk.
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
        /// Error from the operating system.
        source: io::Error,
    },
}

/// Desired state of Envoy.
#[derive(Clone, Copy)]
pub struct Desired<'a> {
    /// All resources to serve.
    pub rendered: &'a Rendered,
    /// Leaf certificate's serial number in hexadecimal, by secret name.
    pub serials: &'a BTreeMap<String, String>,
    /// Allows the transaction to remove all listeners.
    pub may_empty: bool,
}

/// Leftovers from an earlier agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of changes undone because they belonged to an interrupted transaction.
    pub undone: usize,
    /// Files that were removed because they were damaged or not written by an agent.
    pub junk: Vec<PathBuf>,
}
