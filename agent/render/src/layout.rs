//! Paths of the files of one Envoy.
//!
//! Each subscription has a directory, because Envoy wakes every watcher of a directory on each
//! event in it. File names are hashes, because an object's name is never a path. A staging
//! directory on the same file system lets every file be moved into place by `rename(2)`.

use std::path::{Path, PathBuf};

use sesame_proto::digest::sha256;

/// The directory of the files that one Envoy watches.
///
/// ```text
/// <root>/lds/lds.pb   <root>/rds/<hash>/rds.pb   <root>/sds/<hash>/sds.pb
/// <root>/cds/cds.pb   <root>/eds/<hash>/eds.pb   <root>/ecds/<hash>/ecds.pb
/// <root>/rtds/rtds.pb   <root>/tickets/tickets.pb   <root>/tmp/
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsLayout {
    root: PathBuf,
}

impl XdsLayout {
    /// Returns a layout below `root`, without creating anything.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory of everything.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All listeners.
    pub fn lds(&self) -> PathBuf {
        self.root.join("lds/lds.pb")
    }

    /// All clusters.
    pub fn cds(&self) -> PathBuf {
        self.root.join("cds/cds.pb")
    }

    /// The shares of listeners and backends.
    pub fn rtds(&self) -> PathBuf {
        self.root.join("rtds/rtds.pb")
    }

    /// The keys of session tickets.
    pub fn tickets(&self) -> PathBuf {
        self.root.join("tickets/tickets.pb")
    }

    /// One route table.
    pub fn rds(&self, name: &str) -> PathBuf {
        self.leaf("rds", name)
    }

    /// The endpoints of one cluster.
    pub fn eds(&self, name: &str) -> PathBuf {
        self.leaf("eds", name)
    }

    /// One secret.
    pub fn sds(&self, name: &str) -> PathBuf {
        self.leaf("sds", name)
    }

    /// One filter.
    pub fn ecds(&self, name: &str) -> PathBuf {
        self.leaf("ecds", name)
    }

    /// The directory in which files are written before they are renamed into place.
    pub fn staging(&self) -> PathBuf {
        self.root.join("tmp")
    }

    fn leaf(&self, kind: &str, name: &str) -> PathBuf {
        let mut path = self.root.join(kind);
        path.push(file_name(name));
        path.push(format!("{kind}.pb"));
        path
    }
}

/// Returns a file name for any name: 32 hexadecimal digits of its SHA-256.
pub fn file_name(name: &str) -> String {
    let mut digest = sha256(name.as_bytes());
    digest.truncate(32);
    digest
}
