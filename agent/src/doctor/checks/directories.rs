//! Checks the state and runtime directories: owners, modes and free space.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::doctor::facts::{DiskFacts, HostFacts, PathFacts};
use crate::doctor::{FindingSeverity, HostFinding};

/// Free bytes needed to store a change.
const LEAST_BYTES: u64 = 16 << 20;
/// Free bytes needed for all accepted generations.
const FEW_BYTES: u64 = 320 << 20;
/// Free bytes needed for a large Gateway's files.
const FEW_RUNTIME_BYTES: u64 = 64 << 20;
const LEAST_INODES: u64 = 256;
const SHOWN: usize = 5;

pub(super) fn all(facts: &HostFacts) -> Vec<HostFinding> {
    let (foreign, open): (Vec<&PathFacts>, Vec<_>) = facts
        .misplaced
        .iter()
        .partition(|path| path.owner != path.wanted_owner);
    let missing = facts.missing.iter();
    let mut findings: Vec<HostFinding> = missing
        .map(|(path, owner)| missing_directory(path, *owner))
        .collect();
    findings.extend(owners(&foreign));
    findings.extend(modes(&open));
    if findings.is_empty() {
        findings.push(HostFinding::ok(
            "directories",
            "owners and modes are correct",
        ));
    }
    findings
}

fn missing_directory(path: &Path, owner: u32) -> HostFinding {
    let command = format!("install -d -m 0700 -o {owner} {}", path.display());
    HostFinding::note("directories", format!("{} is missing", path.display()))
        .expected("a directory of mode 0700; the agent creates it if permissions allow")
        .remedy(command)
}

fn owners(foreign: &[&PathFacts]) -> Option<HostFinding> {
    let first = foreign.first()?;
    let found =
        |path: &&PathFacts| format!("{} belongs to user {}", path.path.display(), path.owner);
    let finding = HostFinding::error("owners", listed(foreign, found))
        .expected(format!("user {}, the agent's user", first.wanted_owner))
        .remedy(format!(
            "chown {}{}, after checking their content",
            first.wanted_owner,
            paths(foreign)
        ));
    Some(finding)
}

fn modes(open: &[&PathFacts]) -> Option<HostFinding> {
    open.first()?;
    let found = |path: &&PathFacts| format!("{} has mode {:04o}", path.path.display(), path.mode);
    let finding = HostFinding::new("modes", weight(open), listed(open, found))
        .expected("no access for other users, because private keys are stored here")
        .remedy(chmod(open));
    Some(finding)
}

fn paths(paths: &[&PathFacts]) -> String {
    let paths = paths.iter().map(|path| format!(" {}", path.path.display()));
    paths.collect()
}

fn chmod(open: &[&PathFacts]) -> String {
    let mut modes: BTreeMap<u32, String> = BTreeMap::new();
    for path in open {
        let mode = path.mode & path.wanted_mode;
        let command = modes
            .entry(mode)
            .or_insert_with(|| format!("chmod {mode:04o}"));
        let _ = write!(command, " {}", path.path.display());
    }
    let commands: Vec<String> = modes.into_values().collect();
    commands.join(" && ")
}

/// Returns the severity. A directory that others can read is less severe, because its files have
/// their own modes.
fn weight(open: &[&PathFacts]) -> FindingSeverity {
    /// Expected mode of directories. It identifies them, because no file is expected to have it.
    const DIRECTORY: u32 = 0o700;
    let harmless = |path: &&PathFacts| path.wanted_mode == DIRECTORY && path.mode & 0o022 == 0;
    if open.iter().all(harmless) {
        FindingSeverity::Warning
    } else {
        FindingSeverity::Error
    }
}

fn listed(paths: &[&PathFacts], found: impl Fn(&&PathFacts) -> String) -> String {
    let mut words: Vec<String> = paths.iter().take(SHOWN).map(found).collect();
    if let Some(more) = paths.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        words.push(format!("and {more} more"));
    }
    words.join("; ")
}

pub(super) fn disks(facts: &HostFacts) -> Vec<HostFinding> {
    facts.disks.iter().flat_map(disk).collect()
}

fn disk(disk: &DiskFacts) -> Vec<HostFinding> {
    let DiskFacts {
        option,
        path,
        free,
        inodes,
        in_memory,
    } = disk;
    let is_runtime = *option == "runtime-dir";
    let few = if is_runtime {
        FEW_RUNTIME_BYTES
    } else {
        FEW_BYTES
    };
    let scarce = inodes.is_some_and(|inodes| inodes < LEAST_INODES);
    let severity = match free {
        _ if scarce => FindingSeverity::Error,
        free if *free < LEAST_BYTES => FindingSeverity::Error,
        free if *free < few => FindingSeverity::Warning,
        _ => FindingSeverity::Ok,
    };
    let counted = inodes.map_or_else(String::new, |inodes| format!(" and {inodes} inodes"));
    let found = format!(
        "{}: {} MiB{counted} free ({option})",
        path.display(),
        free >> 20
    );
    let mut room = HostFinding::new("disk", severity, found);
    if severity != FindingSeverity::Ok {
        room = room
            .expected(format!("{} MiB and {LEAST_INODES} inodes", few >> 20))
            .remedy(format!(
                "df -h {0}; df -i {0}; then free up space, or set a different --{option}",
                path.display()
            ));
    }
    let mut findings = vec![room];
    if is_runtime && !in_memory {
        findings.push(
            HostFinding::warning(
                "runtime-tmpfs", format!("{} is on a disk", path.display()),
            )
            .expected(
                "an in-memory file system, which keeps private keys off disks and speeds up changes",
            )
            .remedy("set --runtime-dir to a directory below /run"),
        );
    }
    findings
}
