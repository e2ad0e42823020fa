//! The accepted generations of a Gateway: what there were, how two differ, and going back to one.
//!
//! A Gateway that was rolled back stays where it is, also over restarts of the agent, until it is told to resume.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;
use sesame_controller::api::NamespacedName;
use sesame_controller::resolve::ResolvedGateway;
use sesame_proto::open::{self, Rule};

use super::accepted;
use super::directories::Directories;
use crate::apply::replace_file;
use crate::apply::state::{Meta, StateDir};
use crate::quarantine::digests;

const PINNED: &str = "pinned";

/// The generation that a Gateway was rolled back to, if it was.
pub(super) fn pinned(directory: &Path) -> Option<u64> {
    let text = open::read_text(&directory.join(PINNED), Rule::Own, 64).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Notes it, or that there is none any more.
pub(super) fn pin(directory: &Path, generation: Option<u64>) -> io::Result<()> {
    let path = directory.join(PINNED);
    match generation {
        Some(number) => replace_file(&path, format!("{number}\n").as_bytes()),
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

/// The accepted generations of one Gateway on disk.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    state: StateDir,
}

impl History {
    /// Of `gateway`, or of the only one there is.
    pub fn open(state_dir: &Path, gateway: Option<&str>) -> anyhow::Result<Self> {
        let directory = match gateway {
            Some(gateway) => {
                let (namespace, name) = gateway
                    .split_once('/')
                    .with_context(|| format!("{gateway:?}: expected NAMESPACE/NAME"))?;
                Directories::state_of(state_dir, &NamespacedName::new(namespace, name))
            }
            None => match Directories::states_below(state_dir).as_slice() {
                [only] => only.clone(),
                [] => bail!(
                    "{}: no Gateway was ever served from here",
                    state_dir.display()
                ),
                more => bail!(
                    "{} holds {} Gateways; name one with --gateway",
                    state_dir.display(),
                    more.len()
                ),
            },
        };
        if !directory.is_dir() {
            bail!(
                "{}: this Gateway was never served from here",
                directory.display()
            );
        }
        let state = StateDir::view(&directory);
        Ok(Self { directory, state })
    }

    /// What is known of each, oldest first.
    pub fn list(&self) -> anyhow::Result<Vec<Meta>> {
        Ok(self.state.list()?)
    }

    /// The number of the one that a cold start would serve.
    pub fn accepted(&self) -> Option<u64> {
        self.state.accepted()
    }

    /// The number of the one that it was rolled back to.
    pub fn pinned(&self) -> Option<u64> {
        pinned(&self.directory)
    }

    /// How two generations differ, object by object.
    pub fn difference(&self, from: u64, to: u64) -> anyhow::Result<Difference> {
        let old = accepted::read(&self.state.load(from)?)?;
        let new = accepted::read(&self.state.load(to)?)?;
        Ok(difference(&old, &new))
    }
}

/// One generation of a Gateway's own directory.
pub(super) fn load(directory: &Path, number: u64) -> anyhow::Result<ResolvedGateway> {
    accepted::read(&StateDir::view(directory).load(number)?)
}

/// The objects, and parts of objects, by which two generations differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Only in the second.
    pub added: Vec<String>,
    /// Only in the first.
    pub removed: Vec<String>,
    /// In both, and not the same.
    pub changed: Vec<String>,
}

fn difference(old: &ResolvedGateway, new: &ResolvedGateway) -> Difference {
    let (old, new) = (named(old), named(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut difference = Difference::default();
    for name in names {
        let list = match (old.get(name), new.get(name)) {
            (None, _) => &mut difference.added,
            (_, None) => &mut difference.removed,
            (before, after) if before != after => &mut difference.changed,
            _ => continue,
        };
        list.push(name.clone());
    }
    difference
}

fn named(gateway: &ResolvedGateway) -> BTreeMap<String, [u8; 32]> {
    digests(&gateway.snapshot)
        .into_iter()
        .map(|(piece, digest)| (format!("{} {piece}", piece.kind()), digest))
        .collect()
}
