//! Input of a transaction, and errors that prevent it from running.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::plan::PlanError;
use crate::host::reserve::LackingInstances;
use sesame_render::Rendered;

/// Error that prevents a transaction or the writing of its files. The files are unchanged, unless
/// restoring them failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The desired state contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The transaction would remove all listeners, and `may_empty` is not set. To Envoy, an empty
    /// file means "remove everything".
    #[error("refusing to remove all {count} listeners at once; confirm that this is intended")]
    Empties {
        /// Number of listeners that are currently served.
        count: usize,
    },
    /// There are too few inotify instances for the new files, so Envoy would abort.
    #[error("Envoy cannot watch the new files: {0}")]
    Watches(#[from] LackingInstances),
    /// A file could not be written, read or restored.
    #[error("{action} below {root}: {source}", root = .root.display())]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Directory of the files.
        root: PathBuf,
        /// Error reported by the operating system.
        source: io::Error,
    },
}

/// Desired state, which a transaction establishes.
#[derive(Clone, Copy)]
pub struct Desired<'a> {
    /// All resources to serve.
    pub rendered: &'a Rendered,
    /// Secret name → hexadecimal serial number of the leaf certificate that Envoy must serve.
    pub serials: &'a BTreeMap<String, String>,
    /// True if the transaction may remove all listeners.
    pub may_empty: bool,
}

/// Leftovers of an earlier agent, found when the files were opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of changes of an interrupted transaction that were undone.
    pub undone: usize,
    /// Files that were removed because they were damaged or not written by the agent.
    pub junk: Vec<PathBuf>,
}
