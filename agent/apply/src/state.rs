//! Stores the last accepted generations, from which the agent can start without its source.
//!
//! ```text
//! <directory>/generations/<number>/{meta.json,snapshot,keys}   <directory>/accepted
//! ```
//!
//! `accepted` contains the number of the generation to start from. After a power cut at any point,
//! the last accepted generation or its predecessor is intact.

mod keys;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_files::open;
use sesame_proto::digest::sha256;

use sesame_host::{PathError, durable, entries, written_by_agent};

/// Maximum snapshot size in bytes. A snapshot from a cluster is always far smaller.
const MAX_SNAPSHOT: u64 = 256 << 20;
const MAX_KEYS: u64 = 64 << 20;
const MAX_META: u64 = 64 << 10;
const META: &str = "meta.json";
const SNAPSHOT: &str = "snapshot";
const KEYS: &str = "keys";
const ACCEPTED: &str = "accepted";

/// A generation to store.
#[derive(Clone, Copy)]
pub struct Accepted<'a> {
    /// Digest of the revision.
    pub revision: &'a str,
    /// Digest of the revision without endpoints.
    pub config: &'a str,
    /// Cause of the change: the name of a source, `rollback`, …
    pub cause: &'a str,
    /// Time at which Envoy accepted the generation.
    pub time: Timestamp,
    /// Snapshot, as encoded by the caller.
    pub snapshot: &'a [u8],
    /// Keys, as encoded by the caller.
    pub keys: &'a [u8],
    /// Addresses at which Envoy serves the generation.
    pub addresses: &'a [IpAddr],
}

/// Metadata of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Number of the generation. New generations get the highest number.
    pub number: u64,
    /// See [`Accepted`].
    pub revision: String,
    /// See [`Accepted`]. Empty in generations stored by older agents.
    #[serde(default)]
    pub config: String,
    /// See [`Accepted`].
    pub cause: String,
    /// See [`Accepted`].
    pub time: Timestamp,
    /// SHA-256 of the snapshot in hexadecimal.
    pub snapshot_sha256: String,
    /// SHA-256 of the keys in hexadecimal.
    pub keys_sha256: String,
    /// See [`Accepted`]. Empty in generations stored by older agents.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// A generation whose digests were verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Generation {
    /// Metadata of the generation.
    pub meta: Meta,
    /// The encoded snapshot.
    pub snapshot: Bytes,
    /// The encoded keys.
    pub keys: Bytes,
}

/// Omits the keys, because they are secret.
impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Generation").field(&self.meta).finish()
    }
}

/// Generation to start from, and the damage found while loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The last accepted generation. If it is damaged, another intact one, preferably older.
    pub generation: Option<Generation>,
    /// Messages about damaged or missing parts.
    pub damage: Vec<String>,
}

/// Error while storing or reading a generation.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A part is too large to be read back.
    #[error("{what} is too large for the state directory: {len} bytes, maximum {max}")]
    TooLarge {
        /// Name of the part: `snapshot` or `keys`.
        what: &'static str,
        /// Size in bytes.
        len: usize,
        /// Limit in bytes.
        max: u64,
    },
    /// The generation exists but cannot be used.
    #[error("generation {number}: {reason}")]
    Damaged {
        /// Number of the generation.
        number: u64,
        /// Why the generation cannot be used.
        reason: String,
    },
}

/// Directory that stores the generations.
#[derive(Debug)]
pub struct StateDir {
    directory: PathBuf,
    keep: usize,
}

impl StateDir {
    /// Default number of generations to keep.
    pub const KEEP: usize = 20;
    /// Maximum total size of all generations in bytes. The accepted one and the newest two are
    /// always kept.
    const MAX_BYTES: u64 = 256 << 20;

    /// Opens or creates the directory. `keep` is the number of generations to keep, at least two.
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self, StateError> {
        let state = Self {
            directory: directory.into(),
            keep: keep.max(2),
        };
        let generations = state.generations();
        durable::create_directory(&generations).map_err(PathError::at(&generations))?;
        for path in entries(&generations).map_err(PathError::at(&generations))? {
            if number_of(&path).is_none() && path.is_dir() {
                durable::remove_directory(&path).map_err(PathError::at(&path))?;
            }
        }
        Ok(state)
    }

    /// Opens a directory read-only. It need not exist, and another process may be writing to it.
    pub fn view(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            keep: Self::KEEP,
        }
    }

    /// Stores a generation, marks it as accepted, and returns its number.
    ///
    /// Removes generations beyond the limits, and generations that differ from their successors
    /// only in endpoints. In a busy cluster, these would soon displace all others.
    pub fn accept(&self, accepted: Accepted<'_>) -> Result<u64, StateError> {
        let Accepted {
            revision,
            config,
            cause,
            time,
            snapshot,
            keys,
            addresses,
        } = accepted;
        for (what, bytes, max) in [(SNAPSHOT, snapshot, MAX_SNAPSHOT), (KEYS, keys, MAX_KEYS)] {
            if bytes.len() as u64 > max {
                let len = bytes.len();
                return Err(StateError::TooLarge { what, len, max });
            }
        }
        let generations = self.generations();
        let number = self
            .numbers()?
            .last()
            .map_or(1, |last| last.saturating_add(1));
        let meta = Meta {
            number,
            revision: revision.to_owned(),
            config: config.to_owned(),
            cause: cause.to_owned(),
            time,
            snapshot_sha256: sha256(snapshot),
            keys_sha256: sha256(keys),
            addresses: addresses.to_vec(),
        };
        let meta = serde_json::to_vec_pretty(&meta)
            .map_err(|error| PathError::at(&generations)(io::Error::other(error)))?;
        let staged = generations.join(format!("{number}.new"));
        if staged.is_dir() {
            durable::remove_directory(&staged).map_err(PathError::at(&staged))?;
        }
        durable::create_directory(&staged).map_err(PathError::at(&staged))?;
        for (name, bytes) in [(SNAPSHOT, snapshot), (KEYS, keys), (META, meta.as_slice())] {
            let path = staged.join(name);
            durable::write_file(&path, bytes).map_err(PathError::at(&path))?;
        }
        durable::sync_directory(&staged).map_err(PathError::at(&staged))?;
        let path = generations.join(number.to_string());
        durable::rename(&staged, &path).map_err(PathError::at(&path))?;
        self.point_to(number)?;
        self.drop_oldest(number)?;
        Ok(number)
    }

    /// Loads the generation to start from.
    pub fn load_accepted(&self) -> Result<Loaded, StateError> {
        let numbers = self.numbers()?;
        let mut loaded = Loaded::default();
        let accepted = self.accepted();
        if accepted.is_none() && !numbers.is_empty() {
            let pointer = self.directory.join(ACCEPTED);
            loaded.damage.push(format!(
                "{}: missing or damaged, using the newest complete generation",
                pointer.display()
            ));
        }
        // Try newer generations last. They are complete, but were never marked as accepted.
        let limit = accepted.unwrap_or(u64::MAX);
        let older = numbers.range(..=limit).rev();
        let newer = numbers.range(limit.saturating_add(1)..).rev();
        if let Some(accepted) = accepted
            && !numbers.contains(&accepted)
        {
            loaded
                .damage
                .push(format!("generation {accepted}: accepted, but missing"));
        }
        for number in older.chain(newer.filter(|_| accepted.is_some())) {
            match self.load(*number) {
                Ok(generation) => {
                    loaded.generation = Some(generation);
                    break;
                }
                Err(error) => loaded.damage.push(error.to_string()),
            }
        }
        Ok(loaded)
    }

    /// Reads one generation and verifies its digests.
    pub fn load(&self, number: u64) -> Result<Generation, StateError> {
        let directory = self.generations().join(number.to_string());
        let damaged = |reason: String| StateError::Damaged { number, reason };
        let read = |name: &str, max| {
            read_bounded(&directory.join(name), max).map_err(|e| damaged(format!("{name}: {e}")))
        };
        let meta = self.meta(number)?;
        let snapshot = read(SNAPSHOT, MAX_SNAPSHOT)?;
        let expected = &meta.snapshot_sha256;
        if sha256(&snapshot) != *expected {
            return Err(damaged(format!(
                "{SNAPSHOT}: its SHA-256 is not {expected}"
            )));
        }
        let keys = self.read_keys(&meta)?;
        Ok(Generation {
            meta,
            snapshot: snapshot.into(),
            keys: keys.into(),
        })
    }

    /// Returns the metadata of all generations, oldest first. Skips unreadable metadata.
    pub fn list(&self) -> Result<Vec<Meta>, StateError> {
        let numbers = self.numbers()?;
        Ok(numbers.iter().filter_map(|n| self.meta(*n).ok()).collect())
    }

    /// Returns the number of the accepted generation, or `None` if it is missing or damaged.
    pub fn accepted(&self) -> Option<u64> {
        let bytes = read_bounded(&self.directory.join(ACCEPTED), 32).ok()?;
        // Without a trailing newline, the number may be truncated.
        let text = std::str::from_utf8(&bytes).ok()?.strip_suffix('\n')?;
        text.parse().ok()
    }

    fn meta(&self, number: u64) -> Result<Meta, StateError> {
        let damaged = |reason: String| StateError::Damaged { number, reason };
        let path = self.generations().join(number.to_string()).join(META);
        let bytes = read_bounded(&path, MAX_META).map_err(|e| damaged(format!("{META}: {e}")))?;
        let meta: Meta =
            serde_json::from_slice(&bytes).map_err(|e| damaged(format!("{META}: {e}")))?;
        if meta.number != number {
            return Err(damaged(format!(
                "{META}: belongs to generation {}",
                meta.number
            )));
        }
        Ok(meta)
    }

    fn point_to(&self, number: u64) -> Result<(), StateError> {
        let path = self.directory.join(ACCEPTED);
        let number = format!("{number}\n");
        Ok(durable::replace_file(&path, number.as_bytes()).map_err(PathError::at(&path))?)
    }

    /// Always keeps the newest two generations and the accepted one.
    fn drop_oldest(&self, accepted: u64) -> Result<(), StateError> {
        let (mut bytes, mut kept) = (0, 0);
        let mut next = String::new();
        for number in self.numbers()?.iter().rev() {
            let path = self.generations().join(number.to_string());
            bytes += size(&path);
            let config = self.meta(*number).map(|meta| meta.config);
            let config = config.unwrap_or_default();
            let only_endpoints_differ = !config.is_empty() && config == next;
            let excess = kept >= self.keep
                || (kept >= 2 && (bytes > Self::MAX_BYTES || only_endpoints_differ));
            next = config;
            if excess && *number != accepted {
                durable::remove_directory(&path).map_err(PathError::at(&path))?;
            } else {
                kept += 1;
            }
        }
        Ok(())
    }

    fn generations(&self) -> PathBuf {
        self.directory.join("generations")
    }

    /// Returns the numbers of all stored generations.
    pub fn numbers(&self) -> Result<BTreeSet<u64>, StateError> {
        let generations = self.generations();
        let paths = entries(&generations).map_err(PathError::at(&generations))?;
        Ok(paths.iter().filter_map(|path| number_of(path)).collect())
    }
}

fn number_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

fn size(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}

fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    Ok(open::read(path, written_by_agent(), max)?)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
