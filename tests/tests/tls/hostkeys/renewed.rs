//! Certificate and key files, with renewals that mimic common tools.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use sesame_tests::certs::Leaf;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Replaces one symlink to the directory of both files, like a Secret volume.
    DirectoryMoved,
    /// Replaces one symlink per file, like certbot.
    LinksMoved,
    /// Overwrites one file after the other.
    InPlace,
}

/// A directory with the files `tls.crt` and `tls.key`.
pub(crate) struct RenewedPair {
    root: TempDir,
    renewal: Renewal,
    version: usize,
}

impl RenewedPair {
    pub(crate) fn new(renewal: Renewal, leaf: &Leaf) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let mut pair = Self {
            root,
            renewal,
            version: 0,
        };
        pair.renew(leaf);
        pair
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn renew(&mut self, leaf: &Leaf) {
        self.version += 1;
        let name = format!("..{}", self.version);
        let directory = match self.renewal {
            Renewal::InPlace => self.root.path().to_owned(),
            _ => self.path(&name),
        };
        fs::create_dir_all(&directory).expect("a directory");
        write(&directory, leaf);
        match self.renewal {
            Renewal::DirectoryMoved => {
                self.link(&name, "..data");
                for file in ["tls.crt", "tls.key"] {
                    if !self.path(file).exists() {
                        self.link(&format!("..data/{file}"), file);
                    }
                }
            }
            Renewal::LinksMoved => {
                for file in ["tls.crt", "tls.key"] {
                    self.link(&format!("{name}/{file}"), file);
                }
            }
            Renewal::InPlace => return,
        }
        // The kubelet also removes the old directory.
        let _ = fs::remove_dir_all(self.path(&format!("..{}", self.version - 1)));
    }

    fn link(&self, to: &str, name: &str) {
        let new = self.path("..new");
        symlink(to, &new).expect("a link");
        fs::rename(new, self.path(name)).expect("a move");
    }

    /// Returns the flag that uses the files for `secret` in namespace `default`.
    pub(crate) fn flag(&self, secret: &str) -> String {
        let at = self.root.path().display();
        format!(
            "--local-certificate=secret=default/{secret},certFile={at}/tls.crt,keyFile={at}/tls.key"
        )
    }
}

pub(crate) fn write(directory: &Path, leaf: &Leaf) {
    fs::write(directory.join("tls.crt"), &leaf.certificate_pem).expect("written");
    let key = directory.join("tls.key");
    fs::write(&key, &leaf.key_pem).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
}
