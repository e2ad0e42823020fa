//! Stores the last good text of each manifest, in case the file is broken when the agent starts.
//!
//! A text is stored only after it is served. Files are private and sealed, because manifests may
//! contain Secrets. Each is named by a digest, because a manifest's name must never be used as a
//! path.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sesame_files::open::{self, Rule};
use sesame_proto::digest::sha256;

use crate::seal::SealingKeys;
use sesame_host::{create_directory, entries, remove_if_exists, replace_file};

/// Last good texts in a directory. Without a directory, nothing is stored.
#[derive(Debug)]
pub struct LastGood {
    dir: Option<PathBuf>,
    sealing: Arc<SealingKeys>,
}

/// Followed by the text's digest, which detects torn files, because writes are not synced to disk.
const HEADER: &str = "# last good, sha256 ";

impl LastGood {
    /// Creates `dir` with mode 0700 on first use. Each source needs its own directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: Some(dir.into()),
            sealing: Arc::default(),
        }
    }

    /// Seals texts with these keys.
    #[must_use]
    pub fn sealed_with(mut self, sealing: Arc<SealingKeys>) -> Self {
        self.sealing = sealing;
        self
    }

    /// Returns a store that keeps nothing.
    pub fn none() -> Self {
        Self {
            dir: None,
            sealing: Arc::default(),
        }
    }

    /// Returns the stored text, if it is complete and readable.
    pub fn load(&self, manifest: &Path, limit: u64) -> Option<String> {
        self.read(manifest, limit).map(|(text, _)| text)
    }

    /// The boolean is false if the text must be resealed.
    fn read(&self, manifest: &Path, limit: u64) -> Option<(String, bool)> {
        let path = self.dir.as_ref()?.join(name(manifest));
        let stored = open::read(&path, Rule::Own, limit.saturating_add(512)).ok()?;
        let (stored, current) = self.sealing.open_text(stored, manifest)?;
        let (digest, text) = stored.strip_prefix(HEADER)?.split_once('\n')?;
        (digest == sha256(text.as_bytes())).then(|| (text.to_owned(), current))
    }

    /// Stores the text of the manifest if it has changed.
    pub fn save(&self, manifest: &Path, text: &str) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let stored = self.read(manifest, length);
        if stored.is_some_and(|(stored, current)| current && stored == text) {
            return Ok(());
        }
        let header = format!("{HEADER}{}\n", sha256(text.as_bytes()));
        let sealed = self.sealing.seal_text(&[&header, text].concat(), manifest);
        create_directory(dir)?;
        let temporary = dir.join(format!(".{}", name(manifest)));
        let path = dir.join(name(manifest));
        replace_file(&path, &temporary, &sealed.map_err(io::Error::other)?)
    }

    /// Removes the text of the manifest.
    pub fn remove(&self, manifest: &Path) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        remove_if_exists(&dir.join(name(manifest)))
    }

    /// Removes the texts of all manifests that are not in `manifests`.
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

fn name(manifest: &Path) -> String {
    sha256(manifest.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use sesame_proto::at_rest::SealingKey;

    use super::*;

    #[test]
    fn saved_text_reads_back_and_is_private() {
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
    fn text_is_resealed_when_key_changes() {
        let dir = tempfile::tempdir().expect("directory");
        let manifest = Path::new("a.yaml");
        let path = dir.path().join(name(manifest));
        let with = |sealing: SealingKeys| LastGood::new(dir.path()).sealed_with(Arc::new(sealing));
        let key = SealingKey::from_random([1; 32]);
        let (clear, sealed) = (
            LastGood::new(dir.path()),
            with(SealingKeys::with(key, "a test")),
        );
        clear.save(manifest, "secret: 1\n").expect("saved");
        assert_eq!(sealed.load(manifest, 100).as_deref(), Some("secret: 1\n"));
        sealed.save(manifest, "secret: 1\n").expect("saved");
        let stored = fs::read(&path).expect("read");
        assert!(!stored.windows(9).any(|part| part == b"secret: 1"));
        assert_eq!(clear.load(manifest, 100), None);
        sealed.save(manifest, "secret: 1\n").expect("saved again");
        assert_eq!(fs::read(&path).expect("read"), stored, "nothing to do");
        assert_eq!(sealed.load(manifest, 100).as_deref(), Some("secret: 1\n"));
    }

    #[test]
    fn truncated_text_is_not_trusted() {
        let dir = tempfile::tempdir().expect("directory");
        let store = LastGood::new(dir.path());
        let manifest = Path::new("a.yaml");
        store.save(manifest, "a: 1\nb: 2\n").expect("saved");
        let path = dir.path().join(name(manifest));
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 5]).expect("write a truncated file");
        assert_eq!(store.load(manifest, 100), None);
        store.save(manifest, "a: 2\n").expect("saved again");
        assert_eq!(store.load(manifest, 100).as_deref(), Some("a: 2\n"));
    }
}
