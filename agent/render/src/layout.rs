//! File paths of one Envoy.
//!
//! Each subscription has its own directory, because each event in a directory makes Envoy wake
//! every watcher of that directory. File names are hashes, because an object's name is never used
//! as a path. A staging directory on the same file system allows moving every file into place with
//! `rename(2)`.

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
    /// Returns a layout under `root`, without creating anything.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Root directory of all files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// File of all listeners.
    pub fn lds(&self) -> PathBuf {
        self.root.join("lds/lds.pb")
    }

    /// File of all clusters.
    pub fn cds(&self) -> PathBuf {
        self.root.join("cds/cds.pb")
    }

    /// File of the shares of listeners and backends.
    pub fn rtds(&self) -> PathBuf {
        self.root.join("rtds/rtds.pb")
    }

    /// File of the session ticket keys.
    pub fn tickets(&self) -> PathBuf {
        self.root.join("tickets/tickets.pb")
    }

    /// File of one route table.
    pub fn rds(&self, name: &str) -> PathBuf {
        self.leaf("rds", name)
    }

    /// File of one cluster's endpoints.
    pub fn eds(&self, name: &str) -> PathBuf {
        self.leaf("eds", name)
    }

    /// File of one secret.
    pub fn sds(&self, name: &str) -> PathBuf {
        self.leaf("sds", name)
    }

    /// File of one filter.
    pub fn ecds(&self, name: &str) -> PathBuf {
        self.leaf("ecds", name)
    }

    /// Directory in which files are written before they are renamed into place.
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
