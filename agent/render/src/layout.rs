//! Paths of the files that one Envoy watches.
//!
//! Each subscription has its own directory, because an event wakes all of Envoy's watchers for that
//! directory. File names are hashes, so that object names are never used as paths.

use std::path::{Path, PathBuf};

use sesame_proto::digest::sha256;

/// The directory with the files that one Envoy watches.
///
/// ```text
/// <root>/lds/lds.pb   <root>/rds/<hash>/rds.pb   <root>/sds/<hash>/sds.pb
/// <root>/cds/cds.pb   <root>/eds/<hash>/eds.pb   <root>/ecds/<hash>/ecds.pb
/// <root>/rtds/rtds.pb   <root>/tickets/tickets.pb   <root>/fleet/fleet.pb   <root>/tmp/
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsLayout {
    root: PathBuf,
}

impl XdsLayout {
    /// Returns a layout under `root`, without creating any file.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the root directory of all files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the file with all listeners.
    pub fn lds(&self) -> PathBuf {
        self.root.join("lds/lds.pb")
    }

    /// Returns the path of the file with all clusters.
    pub fn cds(&self) -> PathBuf {
        self.root.join("cds/cds.pb")
    }

    /// Returns the path of the file with the connection limits of listeners and clusters.
    pub fn rtds(&self) -> PathBuf {
        self.root.join("rtds/rtds.pb")
    }

    /// Returns the path of the file with the Gateway's live hosts.
    pub fn fleet(&self) -> PathBuf {
        self.root.join("fleet/fleet.pb")
    }

    /// Returns the path of the file with the session ticket keys.
    pub fn tickets(&self) -> PathBuf {
        self.root.join("tickets/tickets.pb")
    }

    /// Returns the path of a route table's file.
    pub fn rds(&self, name: &str) -> PathBuf {
        self.leaf("rds", name)
    }

    /// Returns the path of an endpoint set's file.
    pub fn eds(&self, name: &str) -> PathBuf {
        self.leaf("eds", name)
    }

    /// Returns the path of a secret's file.
    pub fn sds(&self, name: &str) -> PathBuf {
        self.leaf("sds", name)
    }

    /// Returns the path of a filter's file.
    pub fn ecds(&self, name: &str) -> PathBuf {
        self.leaf("ecds", name)
    }

    /// Returns the directory in which files are written before they are renamed into place.
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

/// Name of the cluster that reaches the agent's socket for password checks. No route may use it.
pub const PASSWORDS: &str = "passwords";

/// Returns the path of the socket on which the agent checks passwords, as Envoy sees it.
pub fn password_socket(admin_socket: &Path) -> PathBuf {
    // Not longer than the admin socket's path, whose length has been checked.
    admin_socket.with_file_name("auth.sock")
}

/// Returns a file name for an arbitrary name: the first 32 hex digits of its SHA-256 digest.
pub fn file_name(name: &str) -> String {
    let mut digest = sha256(name.as_bytes());
    digest.truncate(32);
    digest
}
