//! A Gateway's accepted generations, and rollbacks to them. A rollback lasts until an operator ends
//! it, even if the agent restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use itertools::{EitherOrBoth, Itertools as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::Snapshot;
use sesame_resolver::ResolvedGateway;

use super::accepted;
use super::directories::Directories;
use sesame_apply::quarantine::digests;
use sesame_apply::state::StateDir;
use sesame_host::durable::replace_file;
use sesame_host::remove_if_exists;
use sesame_sources::seal::SealingKeys;

const PINNED: &str = "pinned";

/// Returns `None` if the Gateway follows the source.
pub(super) fn pinned(directory: &Path) -> Option<u64> {
    let text = open::read_text(&directory.join(PINNED), Rule::Own, 64).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// `None` undoes the rollback.
pub(super) fn pin(directory: &Path, generation: Option<u64>) -> io::Result<()> {
    let path = directory.join(PINNED);
    match generation {
        Some(number) => replace_file(&path, format!("{number}\n").as_bytes()),
        None => remove_if_exists(&path),
    }
}

/// One Gateway's accepted generations on disk.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    state: StateDir,
}

impl History {
    /// Opens the history of `gateway`, which may be `None` if the host has only one Gateway.
    pub fn open(state_dir: &Path, gateway: Option<&NamespacedName>) -> anyhow::Result<Self> {
        let directory = match gateway {
            Some(gateway) => Directories::state_of(state_dir, gateway),
            None => match Directories::states_below(state_dir).as_slice() {
                [only] => only.clone(),
                [] => bail!(
                    "{}: no Gateway has ever been served from this directory",
                    state_dir.display()
                ),
                more => bail!(
                    "{} contains {} Gateways; select one with --gateway",
                    state_dir.display(),
                    more.len()
                ),
            },
        };
        if !directory.is_dir() {
            bail!(
                "{}: this Gateway has never been served from this directory",
                directory.display()
            );
        }
        let state = StateDir::view(&directory);
        Ok(Self { directory, state })
    }

    /// Returns the snapshot that Envoy accepted last.
    pub fn accepted_last(&self) -> anyhow::Result<Snapshot> {
        let number = self.state.accepted();
        self.snapshot(number.context("nothing was accepted yet")?)
    }

    /// Returns the generations, oldest first.
    pub fn list(&self) -> anyhow::Result<Vec<AcceptedGeneration>> {
        let (accepted, pinned) = (self.state.accepted(), pinned(&self.directory));
        let generations = self.state.list()?.into_iter();
        Ok(generations
            .map(|meta| AcceptedGeneration {
                generation: meta.number,
                accepted_at: seconds(meta.time),
                revision: meta.revision,
                cause: meta.cause,
                accepted_last: accepted == Some(meta.number),
                rolled_back_to: pinned == Some(meta.number),
            })
            .collect())
    }

    /// Returns the snapshot of a generation, without keys.
    pub fn snapshot(&self, generation: u64) -> anyhow::Result<Snapshot> {
        Ok(accepted::read_snapshot(&self.state.load(generation)?)?.1)
    }

    /// Returns the differences between two generations, by object.
    pub fn difference(&self, from: u64, to: u64) -> anyhow::Result<Difference> {
        Ok(difference(&self.snapshot(from)?, &self.snapshot(to)?))
    }
}

/// Handles `/history` and `/diff/FROM/TO`, optionally followed by `/NAMESPACE/NAME`. Returns `None`
/// for any other path.
pub(super) fn answer(state_dir: &Path, path: &str) -> Option<anyhow::Result<Vec<u8>>> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let open = |gateway: &[&str]| match gateway {
        [] => History::open(state_dir, None),
        [namespace, name] => History::open(state_dir, Some(&NamespacedName::new(namespace, name))),
        _ => bail!("{path:?}: expected NAMESPACE/NAME at the end, or nothing"),
    };
    let number = |text: &str| {
        let number = text.parse::<u64>();
        number.with_context(|| format!("{text:?}: expected a generation number"))
    };
    match parts.as_slice() {
        ["history", gateway @ ..] => {
            Some(open(gateway).and_then(|history| Ok(serde_json::to_vec(&history.list()?)?)))
        }
        ["diff", from, to, gateway @ ..] => Some(open(gateway).and_then(|history| {
            let difference = history.difference(number(from)?, number(to)?)?;
            Ok(serde_json::to_vec(&difference)?)
        })),
        _ => None,
    }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A configuration that Envoy accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedGeneration {
    /// Number of the generation.
    pub generation: u64,
    /// When Envoy accepted it.
    pub accepted_at: String,
    /// Revision of the snapshot.
    pub revision: String,
    /// Cause of the change.
    pub cause: String,
    /// True if a cold start would serve this generation.
    pub accepted_last: bool,
    /// True if the Gateway is rolled back to this generation.
    pub rolled_back_to: bool,
}

/// Uses the current key pair if the generation's own pair is no longer stored.
pub(super) fn load(
    directory: &Path,
    number: u64,
    sealing: &SealingKeys,
) -> anyhow::Result<ResolvedGateway> {
    let state = StateDir::view(directory);
    accepted::read(&state, &state.load(number)?, sealing)
}

/// The objects and parts of objects that differ between two generations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Names that exist only in the second generation.
    pub added: Vec<String>,
    /// Names that exist only in the first generation.
    pub removed: Vec<String>,
    /// Names that exist in both generations with different content.
    pub changed: Vec<String>,
}

fn difference(old: &Snapshot, new: &Snapshot) -> Difference {
    let (old, new) = (named(old), named(new));
    let mut difference = Difference::default();
    for pair in old
        .into_iter()
        .merge_join_by(new, |(a, _), (b, _)| a.cmp(b))
    {
        let (list, name) = match pair {
            EitherOrBoth::Left((name, _)) => (&mut difference.removed, name),
            EitherOrBoth::Right((name, _)) => (&mut difference.added, name),
            EitherOrBoth::Both((name, before), (_, after)) if before != after => {
                (&mut difference.changed, name)
            }
            EitherOrBoth::Both(..) => continue,
        };
        list.push(name);
    }
    difference
}

fn named(snapshot: &Snapshot) -> BTreeMap<String, [u8; 32]> {
    digests(snapshot)
        .into_iter()
        .map(|(piece, digest)| (format!("{} {piece}", piece.kind()), digest))
        .collect()
}
