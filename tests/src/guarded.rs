//! Files that protect a metrics address: a server certificate, the CA for client certificates, and
//! a bearer token.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::certs::Authority;

/// A directory with the files, deleted on drop.
pub struct GuardDirectory {
    files: TempDir,
    /// The CA that signed the server certificate.
    pub servers: Authority,
    /// The CA that signs client certificates.
    pub clients: Authority,
}

impl GuardDirectory {
    /// Writes the files for a server.
    pub fn new(name: &str, token: &str) -> Self {
        let directory = Self {
            files: tempfile::tempdir().expect("a directory"),
            servers: Authority::new("servers"),
            clients: Authority::new("clients"),
        };
        let server = directory.servers.issue(&[name]);
        directory.put("tls.crt", &server.certificate_pem);
        directory.put("tls.key", &server.key_pem);
        directory.put("ca.crt", directory.clients.pem());
        directory.put("token", &format!("{token}\n"));
        directory
    }

    /// Replaces a file atomically, because a program may be reading it.
    pub fn put(&self, name: &str, text: &str) {
        let aside = self.path().join("aside");
        std::fs::write(&aside, text).expect("written");
        std::fs::rename(&aside, self.path().join(name)).expect("renamed");
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path().join(name)).expect("removed");
    }

    /// Returns the options for these files, which are the same for the agent and the controller.
    pub fn options(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("--metrics-certificate", "tls.crt"),
            ("--metrics-key", "tls.key"),
            ("--metrics-client-ca", "ca.crt"),
            ("--metrics-token-file", "token"),
        ]
        .map(|(option, name)| (option, self.path().join(name)))
    }

    fn path(&self) -> &Path {
        self.files.path()
    }
}
