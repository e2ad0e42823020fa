//! The last good text of each manifest, so that a file that is broken when the agent starts does not take
//! down what it served before.
//!
//! Texts are written after a change is served, never before. Files are private because manifests may hold Secrets, and
//! named by digest, because a name is never used as a path.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sesame_files::open::{self, Rule};
use sesame_proto::digest::sha256;

use crate::host::{create_directory, entries, remove_if_there, replace_file};

/// A directory of last good texts, or no directory.
#[derive(Debug)]
pub struct LastGood {
    dir: Option<PathBuf>,
}

/// Start of every stored text, before its digest: a torn file (no `fsync` is done) is not believed.
const HEADER: &str = "# last good, sha256 ";

impl LastGood {
    /// Keeps texts in `dir`, which is created (0700) when first needed and belongs to one source only.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: Some(dir.into()),
        }
    }

    /// Stores nothing.
    pub fn none() -> Self {
        Self { dir: None }
    }

    /// Returns the text stored for the manifest, if it is whole.
    pub fn load(&self, manifest: &Path, limit: u64) -> Option<String> {
        let path = self.dir.as_ref()?.join(name(manifest));
        let stored = open::read_text(&path, Rule::Own, limit.saturating_add(256)).ok()?;
        let (digest, text) = stored.strip_prefix(HEADER)?.split_once('\n')?;
        (digest == sha256(text.as_bytes())).then(|| text.to_owned())
    }

    /// Stores the text for the manifest, unless it is already stored.
    pub fn save(&self, manifest: &Path, text: &str) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        let header = format!("{HEADER}{}\n", sha256(text.as_bytes()));
        let path = dir.join(name(manifest));
        if starts_with(&path, &header) {
            return Ok(());
        }
        create_directory(dir)?;
        let temporary = dir.join(format!(".{}", name(manifest)));
        replace_file(&path, &temporary, [&header, text].concat().as_bytes())
    }

    /// Removes the text of the manifest.
    pub fn remove(&self, manifest: &Path) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        remove_if_there(&dir.join(name(manifest)))
    }

    /// Removes the texts of all manifests but these.
    pub fn retain<'a>(&self, manifests: impl Iterator<Item = &'a Path>) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        let keep: std::collections::HashSet<String> = manifests.map(name).collect();
        for path in entries(dir)? {
            let name = path.file_name().and_then(OsStr::to_str);
            if !name.is_some_and(|name| keep.contains(name)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Returns whether the file starts with the header, which holds the digest of the rest.
fn starts_with(path: &Path, header: &str) -> bool {
    let mut start = vec![0; header.len()];
    let opened = open::open(path, Rule::Own);
    let read = opened.is_ok_and(|(mut file, _)| file.read_exact(&mut start).is_ok());
    read && start == header.as_bytes()
}

fn name(manifest: &Path) -> String {
    sha256(manifest.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_text_comes_back_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().expect("directory");
        let store = LastGood::new(dir.path().join("last-good"));
        let manifest = Path::new("../../etc/a.yaml");
        assert_eq!(store.load(manifest, 100), None);
        store.save(manifest, "a: 1\n").expect("saved");
        assert_eq!(store.load(manifest, 100).as_deref(), Some("a: 1\n"));
        let entries: Vec<_> = fs::read_dir(dir.path().join("last-good"))
            .expect("directory")
            .map(|entry| {
                entry
                    .expect("entry")
                    .metadata()
                    .expect("metadata")
                    .permissions()
                    .mode()
                    & 0o777
            })
            .collect();
        assert_eq!(entries, [0o600]);
        store
            .retain([Path::new("b.yaml")].into_iter())
            .expect("retained");
        assert_eq!(store.load(manifest, 100), None);
    }

    #[test]
    fn a_torn_text_is_not_believed() {
        let dir = tempfile::tempdir().expect("directory");
        let store = LastGood::new(dir.path());
        let manifest = Path::new("a.yaml");
        store.save(manifest, "a: 1\nb: 2\n").expect("saved");
        let path = dir.path().join(name(manifest));
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 5]).expect("torn");
        assert_eq!(store.load(manifest, 100), None);
        store.save(manifest, "a: 2\n").expect("saved again");
        assert_eq!(store.load(manifest, 100).as_deref(), Some("a: 2\n"));
    }
}
