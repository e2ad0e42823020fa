//! What a transaction is asked, and why there could be none.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::plan::PlanError;
use sesame_render::Rendered;

/// Why a transaction could not even be tried, or its files not be written. The files are as before, unless the
/// error is about putting them back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// What is wanted contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An empty file means "remove everything" to Envoy.
    #[error("refusing to remove all {count} listeners at once; say that it is meant")]
    Empties {
        /// How many there are.
        count: usize,
    },
    /// Envoy would be gone.
    #[error(
        "Envoy would watch {more} files more, and there are no inotify instances for them ({source}); raise fs.inotify.max_user_instances, or user.max_inotify_instances of its user namespace, or look who holds them"
    )]
    Watches {
        /// How many.
        more: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// A file could not be written, read or put back.
    #[error("{action} below {root}: {source}", root = .root.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The directory of the files.
        root: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// Result that a transaction is to have.
#[derive(Clone, Copy)]
pub struct Desired<'a> {
    /// All resources.
    pub rendered: &'a Rendered,
    /// Secret name → serial number of the leaf certificate that handshakes must show then (hexadecimal).
    pub serials: &'a BTreeMap<String, String>,
    /// Whether it may remove all listeners.
    pub may_empty: bool,
}

/// What opening found of an earlier agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Changes of an interrupted transaction that were put back.
    pub undone: usize,
    /// Files that were not ours or not whole, and were removed.
    pub junk: Vec<PathBuf>,
}
