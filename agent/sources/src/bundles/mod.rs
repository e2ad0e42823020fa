//! Serves bundles from a directory that is filled from a USB stick, by rsync, or with `sesame-agent
//! apply`.
//!
//! For each Gateway, serves the bundle with the highest sequence number. Never replaces an applied
//! bundle with an older one unless an operator allows it. A bundle stays in use after its file is
//! removed, because a USB stick is eventually unplugged.

mod choose;
mod conditions;
mod examine;
mod report;
mod ring;
pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sesame_files::bundle::SUFFIX;
use sesame_files::directory::KEYS;
use sesame_kinds::api::NamespacedName;
use sesame_proto::keys::KeyPair;
use sesame_proto::signature::TrustedKeys;
use sesame_resolver::ResolvedGateway;

use self::choose::{Candidate, Standing, choose};
use self::conditions::Conditions;
use self::examine::{BadBundle, BundleRules, GoodBundle, examine};
use self::state::{BundleState, BundleStateError, TakenBundle};
use super::manifests::tree::{self, Found, Stamp};
use super::problem::{Severity, SourceProblem};
use super::update::{GatewayRevision, GatewayUpdate, SourceUpdate};

pub use self::report::{BundleFileState, BundleReport};

/// Time after which an unchanged incomplete file counts as an error.
const SETTLED: Duration = Duration::from_secs(2);
const MAX_FILES: usize = 1000;

/// Returns true if files with this name are read.
pub fn is_piece(name: &OsStr) -> bool {
    let bundle = |name: &str| name.ends_with(SUFFIX) || name == KEYS;
    !tree::is_hidden(name) && name.to_str().is_some_and(bundle)
}

/// The bundle directory, and the conditions for accepting bundles.
#[derive(Clone, Debug)]
pub struct BundleSettings {
    /// Path of the directory.
    pub directory: PathBuf,
    /// Trusted in addition to the keys in the state directory.
    pub trusted: TrustedKeys,
    /// Number of trusted signatures that a bundle needs.
    pub required: usize,
    /// Gateways to serve. Empty means all.
    pub gateways: Vec<NamespacedName>,
    /// Stage of this host in rollouts, from 1. `None` comes after all stages.
    pub ring: Option<u8>,
}

/// The directory as of the last scan.
#[derive(Debug)]
pub struct BundleDirectory {
    settings: BundleSettings,
    state: BundleState,
    conditions: Conditions,
    files: BTreeMap<OsString, ExaminedFile>,
    /// Served revisions, each with its bundle's digest.
    held: BTreeMap<NamespacedName, (String, GatewayRevision)>,
    accepted: BTreeMap<NamespacedName, Vec<KeyPair>>,
}

#[derive(Debug)]
struct ExaminedFile {
    stamp: Stamp,
    since: Instant,
    outcome: Result<GoodBundle, BadBundle>,
}

/// Outcome of a scan.
#[derive(Debug)]
pub struct BundleScan {
    /// Revisions to serve, and all problems.
    pub update: SourceUpdate,
    /// Reports on files, by file name.
    pub files: Vec<BundleReport>,
    /// Delay before the next scan, even if no file changes.
    pub again: Option<Duration>,
}

impl BundleDirectory {
    /// Creates a source without reading the directory.
    pub fn new(settings: BundleSettings, state: BundleState, accepted: &[ResolvedGateway]) -> Self {
        let accepted = accepted.iter();
        Self {
            settings,
            state,
            conditions: Conditions::default(),
            files: BTreeMap::new(),
            held: BTreeMap::new(),
            accepted: accepted
                .map(|one| (one.gateway.clone(), one.keys.clone()))
                .collect(),
        }
    }

    /// Reads changed files, and returns the complete state.
    pub fn scan(&mut self) -> BundleScan {
        let mut scan = BundleScan {
            update: SourceUpdate {
                cause: "a scan of the bundles".to_owned(),
                ..SourceUpdate::default()
            },
            files: Vec::new(),
            again: None,
        };
        if let Err(error) = self.update_conditions(&mut scan.update.problems) {
            // Without trusted keys, no new bundle can be accepted.
            scan.update.problems.push(problem("", error.to_string()));
        } else {
            match self.find() {
                Ok(found) => {
                    self.files.retain(|name, _| found.contains_key(name));
                    for (name, stamp) in found {
                        self.examine_file(name, stamp);
                    }
                    self.select_bundles(&mut scan);
                    if self.held.is_empty() && self.accepted.is_empty() {
                        let directory = self.settings.directory.display();
                        scan.update.away = Some(format!("{directory} contains no usable bundle"));
                    }
                }
                Err(error) => {
                    let directory = self.settings.directory.display();
                    scan.update.away = Some(format!("{directory}: {error}"));
                }
            }
        }
        let held = self.held.iter();
        scan.update.gateways = held
            .map(|(gateway, (_, revision))| {
                let update = GatewayUpdate {
                    complete: Some(revision.clone()),
                    incomplete: None,
                };
                (gateway.clone(), update)
            })
            .collect();
        scan
    }

    fn update_conditions(
        &mut self,
        problems: &mut Vec<SourceProblem>,
    ) -> Result<(), BundleStateError> {
        let changed = self.conditions.changed(&self.settings, &self.state)?;
        if let Some(conditions) = changed {
            self.files.clear();
            self.conditions = conditions;
        }
        problems.extend(self.conditions.problems());
        Ok(())
    }

    fn find(&self) -> io::Result<BTreeMap<OsString, Stamp>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.settings.directory)? {
            let name = entry?.file_name();
            if !is_piece(&name) || name == *KEYS {
                continue;
            }
            if let Found::File(stamp) = tree::inspect(&self.settings.directory.join(&name)) {
                found.insert(name, stamp);
            }
            if found.len() > MAX_FILES {
                return Err(io::Error::other(format!(
                    "contains more than {MAX_FILES} bundles; remove unused ones"
                )));
            }
        }
        Ok(found)
    }

    fn examine_file(&mut self, name: OsString, stamp: Stamp) {
        let mut since = Instant::now();
        if let Some(known) = self.files.get(&name).filter(|known| known.stamp == stamp) {
            if !stamp.is_fresh() {
                return;
            }
            since = known.since;
        }
        let path = self.settings.directory.join(&name);
        let outcome = examine(
            &path,
            &BundleRules {
                trusted: &self.conditions.trusted,
                required: self.settings.required,
                gateways: &self.settings.gateways,
                ring: self.settings.ring,
                identity: self.conditions.identity.as_ref(),
                held: &|gateway| self.keys_of(gateway),
            },
        );
        let file = ExaminedFile {
            stamp,
            since,
            outcome,
        };
        self.files.insert(name, file);
    }

    fn keys_of(&self, gateway: &NamespacedName) -> Vec<KeyPair> {
        let mut keys = self.conditions.keys.clone();
        if let Some((_, revision)) = self.held.get(gateway) {
            keys.extend(revision.encoded.keys().to_vec());
        }
        keys.extend(self.accepted.get(gateway).into_iter().flatten().cloned());
        keys
    }

    fn select_bundles(&mut self, scan: &mut BundleScan) {
        let allowed = self.state.allowed().unwrap_or_default();
        let mut reports: BTreeMap<OsString, BundleReport> = BTreeMap::new();
        let mut good: BTreeMap<NamespacedName, Vec<OsString>> = BTreeMap::new();
        for (name, file) in &self.files {
            match &file.outcome {
                Ok(bundle) => {
                    let names = good.entry(bundle.gateway.clone()).or_default();
                    names.push(name.clone());
                }
                Err(bad) => {
                    let left = SETTLED.saturating_sub(file.since.elapsed());
                    let report =
                        BundleReport::of_bad(text(name), bad, bad.unfinished && !left.is_zero());
                    if report.state == BundleFileState::Refused {
                        let problem = problem(&report.file, bad.reason.clone());
                        scan.update.problems.push(problem);
                    } else {
                        let again = scan.again.map_or(left, |again| again.min(left));
                        scan.again = Some(again);
                    }
                    reports.insert(name.clone(), report);
                }
            }
        }
        for (gateway, names) in good {
            let found = self.select_bundle(&gateway, &names, &allowed, scan);
            reports.extend(names.into_iter().zip(found));
        }
        scan.files = reports.into_values().collect();
    }

    fn select_bundle(
        &mut self,
        gateway: &NamespacedName,
        names: &[OsString],
        allowed: &BTreeSet<String>,
        scan: &mut BundleScan,
    ) -> Vec<BundleReport> {
        let taken = match self.state.taken(gateway) {
            Ok(taken) => taken,
            Err(error) => {
                scan.update.problems.push(problem("", error.to_string()));
                let refused = |why: &str| Standing::Older(why.to_owned());
                let standing = refused(&error.to_string());
                return self.reports(names, &vec![standing; names.len()]);
            }
        };
        let good = |name: &OsString| self.files.get(name)?.outcome.as_ref().ok();
        let candidates: Vec<Candidate> = names
            .iter()
            .filter_map(good)
            .map(|bundle| Candidate {
                sequence: bundle.sequence,
                digest: bundle.digest.clone(),
            })
            .collect();
        let mut standings = choose(taken.as_ref(), &candidates, allowed);
        for (name, standing) in names.iter().zip(&mut standings) {
            if let Err(why) = self.settle(gateway, name, standing, taken.as_ref(), scan) {
                scan.update.problems.push(problem(&text(name), why.clone()));
                *standing = Standing::Older(why);
            }
        }
        for digest in allowed.iter().filter(|digest| {
            let held = self.held.get(gateway);
            held.is_some_and(|(held, _)| held == *digest)
        }) {
            // Ignore errors: a leftover allowance does not matter until another bundle is applied.
            let _ = self.state.disallow(digest);
        }
        self.reports(names, &standings)
    }

    /// Serves the bundle if it is chosen. Returns an error if it cannot be recorded as applied.
    fn settle(
        &mut self,
        gateway: &NamespacedName,
        name: &OsString,
        standing: &Standing,
        taken: Option<&TakenBundle>,
        scan: &mut BundleScan,
    ) -> Result<(), String> {
        let file = self.files.get_mut(name);
        let Some(Ok(bundle)) = file.map(|file| file.outcome.as_mut()) else {
            return Ok(());
        };
        // If the bundle is chosen later, its file is read again.
        let revision = bundle.revision.take();
        let digest = bundle.digest.clone();
        let held = self.held.get(gateway);
        if *standing != Standing::Chosen || held.is_some_and(|(held, _)| *held == digest) {
            return Ok(());
        }
        let next = TakenBundle {
            gateway: gateway.to_string(),
            highest: taken.map_or(0, |taken| taken.highest).max(bundle.sequence),
            sequence: bundle.sequence,
            digest: digest.clone(),
        };
        let (sequence, signers) = (bundle.sequence, bundle.signers.join(", "));
        let Some(revision) = revision else {
            self.files.remove(name);
            scan.again = Some(Duration::ZERO);
            return Ok(());
        };
        if taken != Some(&next) {
            // Without a record of this bundle, an older one could replace it.
            let noted = self.state.record_applied(gateway, &next);
            noted.map_err(|error| format!("cannot be recorded as applied: {error}"))?;
        }
        let file = text(name);
        if next.sequence < next.highest {
            tracing::warn!(%gateway, sequence, file, signers, "applying an older bundle because of --allow-older");
        } else {
            tracing::info!(%gateway, sequence, file, signers, "applying a bundle");
        }
        scan.update.cause = format!("bundle {file}, sequence number {sequence}");
        self.held.insert(gateway.clone(), (digest, revision));
        Ok(())
    }

    fn reports(&self, names: &[OsString], standings: &[Standing]) -> Vec<BundleReport> {
        let reports = names.iter().zip(standings).map(|(name, standing)| {
            let bundle = self
                .files
                .get(name)
                .and_then(|file| file.outcome.as_ref().ok());
            let (state, reason) = match standing {
                Standing::Chosen => (BundleFileState::Taken, String::new()),
                Standing::Superseded => (BundleFileState::Superseded, String::new()),
                Standing::Older(why) => (BundleFileState::Older, why.clone()),
            };
            BundleReport {
                file: text(name),
                state,
                reason,
                gateway: bundle
                    .map(|one| one.gateway.to_string())
                    .unwrap_or_default(),
                sequence: bundle.map_or(0, |one| one.sequence),
                digest: bundle.map(|one| one.digest.clone()).unwrap_or_default(),
                revision: bundle
                    .map(|one| one.manifest_revision.clone())
                    .unwrap_or_default(),
                signers: bundle.map(|one| one.signers.clone()).unwrap_or_default(),
            }
        });
        reports.collect()
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn problem(file: &str, message: String) -> SourceProblem {
    SourceProblem::of_file(Severity::Error, file, message)
}
