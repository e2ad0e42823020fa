//! Snapshots in a directory: one that somebody copies, or that is mounted.
//!
//! The directory is a snapshot directory itself (it has a `manifest.pb`), or holds one for each Gateway. Keys are in
//! `keys.pb` beside the manifest. A revision is taken when every digest fits; until then the one before it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sesame_files::directory::{self, KEYS, MANIFEST};
use sesame_files::open::{self, Rule};
use sesame_gateway_api::api::NamespacedName;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::signature::{self, TrustedKeys};

use super::manifests::tree::{self, Found, Stamp};
use super::problem::{Problem, Severity};
use sesame_proto::encoded::EncodedSnapshot;

use super::update::{
    GatewayRevision, GatewayUpdate, IncompleteRevision, SourceUpdate, Trusted, gateway_of, keys_of,
};

const MAX_KEY_BYTES: u64 = 8 << 20;
/// Directories below the root, and files in one of them: more than any snapshot has.
const MAX_DIRECTORIES: usize = 1000;
const MAX_FILES: usize = 4096;

/// Whether a file of this name can belong to a snapshot.
pub fn is_piece(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(directory::is_piece)
}

/// The directory as it was last seen.
#[derive(Debug)]
pub struct SnapshotDirs {
    root: PathBuf,
    trusted: Trusted,
    /// By path relative to the root.
    held: BTreeMap<PathBuf, Held>,
}

/// One snapshot directory.
#[derive(Debug, Default)]
struct Held {
    /// The pieces that were there when it was read, by file name.
    stamps: BTreeMap<OsString, Piece>,
    gateway: Option<NamespacedName>,
    supplied: GatewayUpdate,
    /// Of the latest signature.
    stamp: Option<u64>,
}

/// Stands for what is at the path of a piece; another value means that the directory is to be read again.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    File(Stamp),
    /// Names the kind: a pipe in the place of a shard is a change too, and the problem has to say so.
    NoFile(&'static str),
}

impl Piece {
    /// Returns whether the file may still change without its stamp telling.
    fn is_fresh(&self) -> bool {
        matches!(self, Self::File(stamp) if stamp.is_fresh())
    }
}

impl SnapshotDirs {
    /// Nothing is read yet.
    pub fn new(root: impl Into<PathBuf>, trusted: Trusted) -> Self {
        Self {
            root: root.into(),
            trusted,
            held: BTreeMap::new(),
        }
    }

    /// Reads what has changed.
    pub fn scan(&mut self) -> SourceUpdate {
        let mut away = None;
        let mut problems = Vec::new();
        let mut strays = Vec::new();
        match self.find(&mut strays) {
            Ok(found) if found.is_empty() => {
                // A directory that is not mounted yet looks just like this.
                away = Some(format!("{} holds no snapshot", self.root.display()));
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
            problems.push(Problem {
                severity: Severity::Warning,
                ..problem(
                    path,
                    format!("has no {MANIFEST}; until it has, or is gone, no Gateway is withdrawn"),
                )
            });
        }
        let mut lists_all = away.is_none() && strays.is_empty();
        for (path, held) in &self.held {
            let Some(gateway) = &held.gateway else {
                // Whose it was meant to be is not known, so nobody is known to be gone.
                lists_all = false;
                let awaited = held.supplied.awaited.as_ref();
                let reason = awaited.map_or("", |awaited| awaited.reason.as_str());
                problems.push(problem(path, reason.to_owned()));
                continue;
            };
            if gateways.contains_key(gateway) {
                problems.push(problem(
                    path,
                    format!("Gateway {gateway} is in a directory before it; this one is not used"),
                ));
                continue;
            }
            if let Some(awaited) = &held.supplied.awaited {
                problems.push(problem(path, awaited.reason.clone()));
            }
            gateways.insert(gateway.clone(), held.supplied.clone());
        }
        SourceUpdate {
            away,
            gateways,
            lists_all,
            problems,
            cause: "a change of the snapshot directory".to_owned(),
        }
    }

    /// The snapshot directories that are there, with those that were and still are directories. What may become one
    /// is a stray.
    fn find(&self, strays: &mut Vec<PathBuf>) -> io::Result<BTreeSet<PathBuf>> {
        if matches!(tree::look(&self.root.join(MANIFEST)), Found::File(_)) {
            return Ok(BTreeSet::from([PathBuf::new()]));
        }
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            let dir = self.root.join(&name);
            if tree::is_hidden(&name) || !matches!(tree::look(&dir), Found::Dir(_)) {
                continue;
            }
            let known = self.held.contains_key(Path::new(&name));
            if known || matches!(tree::look(&dir.join(MANIFEST)), Found::File(_)) {
                found.insert(PathBuf::from(name));
            } else {
                strays.push(PathBuf::from(name));
            }
            if found.len() + strays.len() > MAX_DIRECTORIES {
                return Err(io::Error::other(format!(
                    "holds more than {MAX_DIRECTORIES} snapshots"
                )));
            }
        }
        Ok(found)
    }
}

impl Held {
    fn refresh(&mut self, root: &Path, dir: &Path, trusted: &Trusted) {
        let looked = behind(root, dir).and_then(|dir| match stamps(&dir) {
            Ok(stamps) => Ok((dir, stamps)),
            Err(error) => Err(format!("{}: {error}", dir.display())),
        });
        let (dir, stamps) = match looked {
            Ok(looked) => looked,
            Err(reason) => {
                self.fault(None, reason);
                return;
            }
        };
        let dir = dir.as_path();
        if stamps == self.stamps && !stamps.values().any(Piece::is_fresh) {
            return;
        }
        match read(dir, trusted.as_deref(), self.stamp) {
            Ok((complete, stamp)) => {
                self.stamp = stamp;
                self.gateway = Some(complete.gateway.clone());
                self.supplied = GatewayUpdate {
                    complete: Some(self.same_or(complete)),
                    awaited: None,
                };
            }
            Err(reason) => {
                let manifest = directory::read_manifest(dir).ok();
                self.fault(manifest.as_ref(), reason);
            }
        }
        self.stamps = stamps;
    }

    /// What is held already, if it is the same.
    fn same_or(&self, complete: GatewayRevision) -> GatewayRevision {
        match &self.supplied.complete {
            Some(held) if held.packed == complete.packed => held.clone(),
            _ => complete,
        }
    }

    fn fault(&mut self, manifest: Option<&sesame_proto::schema::Manifest>, reason: String) {
        if let Some(manifest) = manifest
            && self.gateway.is_none()
        {
            self.gateway = gateway_of(&manifest.gateway);
        }
        self.supplied.awaited = Some(IncompleteRevision {
            revision: manifest.map_or_else(String::new, |manifest| manifest.revision.clone()),
            reason,
            stuck: true,
        });
    }
}

/// Where the files of a snapshot are. What is mounted changes as a whole, by one link, and everything is read behind it.
/// No link leads out of the root.
fn behind(root: &Path, dir: &Path) -> Result<PathBuf, String> {
    let at = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let root = fs::canonicalize(root).map_err(|error| at(root, error))?;
    let data = dir.join("..data");
    let real = fs::canonicalize(&data).or_else(|_| fs::canonicalize(dir));
    let real = real.map_err(|error| at(dir, error))?;
    if !real.starts_with(&root) {
        return Err(format!(
            "{}: is a link to {}, out of {}; it is not followed",
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

/// What a directory holds, and the stamp of its signature, which follows the `known` one.
fn read(
    dir: &Path,
    trusted: Option<&TrustedKeys>,
    known: Option<u64>,
) -> Result<(GatewayRevision, Option<u64>), String> {
    let directory::Read {
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
            "{}: {:?} is no Gateway",
            dir.join(MANIFEST).display(),
            snapshot.gateway
        )
    })?;
    let held = if snapshot.keys.is_empty() {
        Vec::new()
    } else {
        read_keys(&dir.join(KEYS))?
    };
    let keys = keys_of(&snapshot, &held).map_err(|missing| {
        format!(
            "{}: has not the keys that revision {} names: {}",
            dir.join(KEYS).display(),
            manifest.revision.get(..12).unwrap_or_default(),
            missing.join(", ")
        )
    })?;
    let packed = EncodedSnapshot::new(&snapshot, keys);
    let complete = GatewayRevision::of_manifest(gateway, manifest.revision, Arc::new(packed));
    Ok((complete, stamp))
}

fn read_keys(path: &Path) -> Result<Vec<KeyPair>, String> {
    let (_, metadata) = open::open(path, Rule::Given).map_err(|error| error.to_string())?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(format!(
            "{}: everybody on this host may use this file of private keys (mode {mode:04o}); make it 0600 or 0640",
            path.display()
        ));
    }
    let bytes = open::read(path, Rule::Given, MAX_KEY_BYTES).map_err(|error| error.to_string())?;
    keys::decode(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns what tells whether anything that belongs to a snapshot is another file than before.
fn stamps(dir: &Path) -> io::Result<BTreeMap<OsString, Piece>> {
    let mut stamps = BTreeMap::new();
    for entry in fs::read_dir(dir)?.take(MAX_FILES) {
        let name = entry?.file_name();
        if !is_piece(&name) {
            continue;
        }
        let piece = match tree::look(&dir.join(&name)) {
            Found::File(stamp) => Piece::File(stamp),
            Found::Dir(_) => Piece::NoFile("a directory"),
            Found::Other(kind) => Piece::NoFile(kind),
            Found::Gone => continue,
            Found::Unreadable(_) => Piece::NoFile("unreadable"),
        };
        stamps.insert(name, piece);
    }
    Ok(stamps)
}

fn problem(path: &Path, message: String) -> Problem {
    Problem {
        file: path.display().to_string(),
        line: None,
        object: None,
        severity: Severity::Error,
        message,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_pipe_or_a_directory_in_the_place_of_a_piece_is_a_change() {
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
