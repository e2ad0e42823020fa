//! Reads snapshots from a directory that is copied or mounted.
//!
//! The directory contains `manifest.pb`, or one snapshot directory per Gateway. Keys are in
//! `keys.pb` next to the manifest. A revision is served once all digests match; until then, the
//! previous one remains in use.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sesame_files::directory::{self, KEYS, MANIFEST};
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::signature::{self, TrustedKeys};

use super::manifests::tree::{self, Found, Stamp};
use super::problem::{Severity, SourceProblem};
use sesame_proto::encoded::EncodedSnapshot;

use super::update::{
    GatewayRevision, GatewayUpdate, IncompleteRevision, SourceUpdate, Trusted, gateway_of, keys_of,
    needs_keys,
};

const MAX_KEY_BYTES: u64 = 24 << 20;
/// Maximum number of directories under the root, and of files in each. Valid sources have fewer.
const MAX_DIRECTORIES: usize = 1000;
const MAX_FILES: usize = 4096;

/// Returns true if a snapshot may contain a file with this name.
pub fn is_piece(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(directory::is_piece)
}

/// The directory as of the last scan.
#[derive(Debug)]
pub struct SnapshotDirs {
    root: PathBuf,
    trusted: Trusted,
    held: BTreeMap<PathBuf, SnapshotDir>,
}

#[derive(Debug, Default)]
struct SnapshotDir {
    stamps: BTreeMap<OsString, PieceStamp>,
    gateway: Option<NamespacedName>,
    update: GatewayUpdate,
    stamp: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum PieceStamp {
    File(Stamp),
    /// Kind of a special file. Replacing a shard with a pipe is also a change.
    NoFile(&'static str),
}

impl PieceStamp {
    /// Returns true if the file may change again without a new stamp.
    fn is_fresh(&self) -> bool {
        matches!(self, Self::File(stamp) if stamp.is_fresh())
    }
}

impl SnapshotDirs {
    /// Creates a source without reading the directory.
    pub fn new(root: impl Into<PathBuf>, trusted: Trusted) -> Self {
        Self {
            root: root.into(),
            trusted,
            held: BTreeMap::new(),
        }
    }

    /// Reads changed files, and returns the complete state.
    pub fn scan(&mut self) -> SourceUpdate {
        let mut away = None;
        let mut problems = Vec::new();
        let mut strays = Vec::new();
        match self.find(&mut strays) {
            Ok(found) if found.is_empty() => {
                // Do not withdraw Gateways: a directory that is not mounted yet is empty, too.
                away = Some(format!("{} contains no snapshot", self.root.display()));
            }
            Ok(found) => {
                self.held.retain(|path, _| found.contains(path));
                for path in found {
                    let dir = self.root.join(&path);
                    self.held
                        .entry(path)
                        .or_default()
                        .refresh(&self.root, &dir, &self.trusted);
                }
            }
            Err(error) => away = Some(format!("{}: {error}", self.root.display())),
        }
        let mut gateways: BTreeMap<NamespacedName, GatewayUpdate> = BTreeMap::new();
        for path in &strays {
            let message = format!(
                "has no {MANIFEST}; no Gateway is withdrawn until it is added or the directory is \
                 removed"
            );
            let file = path.to_string_lossy();
            problems.push(SourceProblem::of_file(Severity::Warning, file, message));
        }
        let mut lists_all = away.is_none() && strays.is_empty();
        for (path, held) in &self.held {
            let Some(gateway) = &held.gateway else {
                // This may be any Gateway's directory, so no Gateway is withdrawn.
                lists_all = false;
                let incomplete = held.update.incomplete.as_ref();
                let reason = incomplete.map_or("", |incomplete| incomplete.reason.as_str());
                problems.push(problem(path, reason.to_owned()));
                continue;
            };
            if gateways.contains_key(gateway) {
                problems.push(problem(
                    path,
                    format!(
                        "Gateway {gateway} is already in an earlier directory; this directory is not used"
                    ),
                ));
                continue;
            }
            if let Some(incomplete) = &held.update.incomplete {
                problems.push(problem(path, incomplete.reason.clone()));
            }
            gateways.insert(gateway.clone(), held.update.clone());
        }
        SourceUpdate {
            away,
            gateways,
            lists_all,
            problems,
            cause: "a change to the snapshot directory".to_owned(),
            receipts: BTreeMap::new(),
        }
    }

    /// Returns current and former snapshot directories. Adds all others to `strays`, because they
    /// may become snapshot directories.
    fn find(&self, strays: &mut Vec<PathBuf>) -> io::Result<BTreeSet<PathBuf>> {
        if matches!(tree::inspect(&self.root.join(MANIFEST)), Found::File(_)) {
            return Ok(BTreeSet::from([PathBuf::new()]));
        }
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let dir = self.root.join(&name);
            if tree::is_hidden(&name) || !matches!(tree::inspect(&dir), Found::Dir(_)) {
                continue;
            }
            let known = self.held.contains_key(Path::new(&name));
            if known || matches!(tree::inspect(&dir.join(MANIFEST)), Found::File(_)) {
                found.insert(PathBuf::from(name));
            } else {
                strays.push(PathBuf::from(name));
            }
            if found.len() + strays.len() > MAX_DIRECTORIES {
                return Err(io::Error::other(format!(
                    "contains more than {MAX_DIRECTORIES} snapshots"
                )));
            }
        }
        Ok(found)
    }
}

impl SnapshotDir {
    fn refresh(&mut self, root: &Path, dir: &Path, trusted: &Trusted) {
        let found = behind(root, dir).and_then(|dir| match stamps(&dir) {
            Ok(stamps) => Ok((dir, stamps)),
            Err(error) => Err(format!("{}: {error}", dir.display())),
        });
        let (dir, stamps) = match found {
            Ok(found) => found,
            Err(reason) => {
                self.fault(None, reason);
                return;
            }
        };
        let dir = dir.as_path();
        if stamps == self.stamps && !stamps.values().any(PieceStamp::is_fresh) {
            return;
        }
        match read(dir, trusted.as_deref(), self.stamp) {
            Ok((complete, stamp)) => {
                self.stamp = stamp;
                self.gateway = Some(complete.gateway.clone());
                self.update = GatewayUpdate {
                    complete: Some(self.same_or(complete)),
                    incomplete: None,
                };
            }
            Err(reason) => {
                let manifest = directory::read_manifest(dir).ok();
                self.fault(manifest.as_ref(), reason);
            }
        }
        self.stamps = stamps;
    }

    fn same_or(&self, complete: GatewayRevision) -> GatewayRevision {
        match &self.update.complete {
            Some(held) if held.encoded == complete.encoded => held.clone(),
            _ => complete,
        }
    }

    fn fault(&mut self, manifest: Option<&sesame_proto::schema::Manifest>, reason: String) {
        if let Some(manifest) = manifest
            && self.gateway.is_none()
        {
            self.gateway = gateway_of(&manifest.gateway);
        }
        self.update.incomplete = Some(IncompleteRevision {
            revision: manifest.map_or_else(String::new, |manifest| manifest.revision.clone()),
            reason,
            stuck: true,
        });
    }
}

/// Resolves the link once, because a mounted volume is replaced by redirecting one link. Returns an
/// error if the link points outside the root.
fn behind(root: &Path, dir: &Path) -> Result<PathBuf, String> {
    let at = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let root = fs::canonicalize(root).map_err(|error| at(root, error))?;
    let data = dir.join("..data");
    let real = fs::canonicalize(&data).or_else(|_| fs::canonicalize(dir));
    let real = real.map_err(|error| at(dir, error))?;
    if !real.starts_with(&root) {
        return Err(format!(
            "{}: is a link to {}, outside {}; it is not followed",
            dir.display(),
            real.display(),
            root.display()
        ));
    }
    for dir in real.ancestors().take_while(|dir| dir.starts_with(&root)) {
        open::check_directory(dir, Rule::Given).map_err(|error| error.to_string())?;
    }
    Ok(real)
}

fn read(
    dir: &Path,
    trusted: Option<&TrustedKeys>,
    known: Option<u64>,
) -> Result<(GatewayRevision, Option<u64>), String> {
    let directory::StoredSnapshot {
        manifest,
        snapshot,
        stamp,
    } = directory::read_trusted(dir, trusted).map_err(|error| error.to_string())?;
    if let Some(stamp) = stamp {
        signature::follows(stamp, known)
            .map_err(|error| format!("{}: {error}", dir.join(MANIFEST).display()))?;
    }
    let gateway = gateway_of(&snapshot.gateway).ok_or_else(|| {
        format!(
            "{}: {:?} is not a Gateway",
            dir.join(MANIFEST).display(),
            snapshot.gateway
        )
    })?;
    let held = if needs_keys(&snapshot) {
        read_keys(&dir.join(KEYS))?
    } else {
        Vec::new()
    };
    let keys = keys_of(&snapshot.keys, &held).map_err(|missing| {
        format!(
            "{}: lacks keys that revision {} needs: {}",
            dir.join(KEYS).display(),
            manifest.revision.get(..12).unwrap_or_default(),
            missing.join(", ")
        )
    })?;
    let encoded = EncodedSnapshot::new(&snapshot, keys);
    let complete = GatewayRevision::of_manifest(gateway, manifest.revision, Arc::new(encoded));
    Ok((complete, stamp))
}

/// Returns an error if every user on this host can access the file.
pub(super) fn read_keys(path: &Path) -> Result<Vec<KeyPair>, String> {
    let (_, metadata) = open::open(path, Rule::Given).map_err(|error| error.to_string())?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(format!(
            "{}: every user of this host can access this file of private keys (mode {mode:04o}); run `chmod 0600` or `chmod 0640` on it",
            path.display()
        ));
    }
    let bytes = open::read(path, Rule::Given, MAX_KEY_BYTES).map_err(|error| error.to_string())?;
    keys::decode(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn stamps(dir: &Path) -> io::Result<BTreeMap<OsString, PieceStamp>> {
    let mut stamps = BTreeMap::new();
    for entry in fs::read_dir(dir)?.take(MAX_FILES) {
        let name = entry?.file_name();
        if !is_piece(&name) {
            continue;
        }
        let piece = match tree::inspect(&dir.join(&name)) {
            Found::File(stamp) => PieceStamp::File(stamp),
            Found::Dir(_) => PieceStamp::NoFile("a directory"),
            Found::Other(kind) => PieceStamp::NoFile(kind),
            Found::Gone => continue,
            Found::Unreadable(_) => PieceStamp::NoFile("unreadable"),
        };
        stamps.insert(name, piece);
    }
    Ok(stamps)
}

fn problem(path: &Path, message: String) -> SourceProblem {
    SourceProblem::of_file(Severity::Error, path.to_string_lossy(), message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn pipe_or_directory_in_place_counts_as_change() {
        let dir = tempfile::tempdir().unwrap();
        let piece = dir.path().join(MANIFEST);
        let nothing = stamps(dir.path()).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &piece, kind, mode, 0).unwrap();
        let pipe = stamps(dir.path()).unwrap();
        fs::remove_file(&piece).unwrap();
        fs::create_dir(&piece).unwrap();
        let directory = stamps(dir.path()).unwrap();
        assert_ne!(nothing, pipe);
        assert_ne!(nothing, directory);
        assert_ne!(pipe, directory);
    }
}
