//! Input of a transaction, and the reasons why it could not run.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::plan::PlanError;
use crate::host::reserve::LackingInstances;
use sesame_render::Rendered;

/// Reason why a transaction could not be tried, or its files could not be written. The files are as
/// before, unless the error is about putting them back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Desired state that contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Unconfirmed removal of all listeners: an empty file means "remove everything" to Envoy.
    #[error("refusing to remove all {count} listeners at once; confirm that this is intended")]
    Empties {
        /// Number of listeners that are served.
        count: usize,
    },
    /// Files to watch without inotify instances left for them: Envoy would abort.
    #[error("Envoy cannot watch the new files: {0}")]
    Watches(#[from] LackingInstances),
    /// File that could not be written, read or put back.
    #[error("{action} below {root}: {source}", root = .root.display())]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Directory of the files.
        root: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// State that a transaction should bring about.
#[derive(Clone, Copy)]
pub struct Desired<'a> {
    /// All resources to serve.
    pub rendered: &'a Rendered,
    /// Secret name → serial number of the leaf certificate that Envoy must serve (hexadecimal).
    pub serials: &'a BTreeMap<String, String>,
    /// True if the transaction may remove all listeners.
    pub may_empty: bool,
}

/// Leftovers of an earlier agent, found on opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Number of changes of an interrupted transaction that were put back.
    pub undone: usize,
    /// Files that were not this agent's or not whole, and were removed.
    pub junk: Vec<PathBuf>,
}
