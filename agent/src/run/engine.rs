//! The engine of manifests: manifests in, what each Gateway wants out. One thread; all of its work is CPU-bound.
//!
//! It first hands over what was accepted before, so that Envoys start at once, then what the manifests say,
//! then every change. A few routes that change are resolved with their neighbours alone, with the outcome of a whole
//! resolution. It never waits for an Envoy.

mod classless;
mod reroute;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::resolve::reroute::OtherStatus;
use sesame_gateway_api::resolve::{Problem, Resolution, ResolvedGateway, Resolver};
use sesame_gateway_api::status::Statuses;
use sesame_gateway_api::world::{LastGoodKeys, World};
use tokio::sync::watch;

use super::report::ProblemReport;
use super::report::transitions::Transitions;
use super::target::{HostSettings, Origin, Targets, render_all};
use super::withdrawal::Withdrawal;
use crate::source::manifests::{Manifests, ScanReport};
use crate::source::problem::Severity;
use crate::source::update::{GatewayRevision, IncompleteRevision};
use crate::source::watch::{Change, Watch};

/// What the engine knows, newest only.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What each Gateway is to serve.
    pub(super) gateways: Targets,
    /// The objects that were resolved last; `None` until the manifests were read once. Statuses are resolved
    /// again when somebody asks: they take more memory than everything else, and are rarely asked for.
    pub(super) world: Option<World>,
    /// Since when each condition has its status.
    pub(super) transitions: Arc<Transitions>,
    /// Everything wrong in the source.
    pub(super) problems: Arc<Vec<ProblemReport>>,
    /// Whether the source could be read the last time.
    pub(super) available: bool,
    /// Why what was accepted before is served instead of what the source says now.
    pub(super) held: Option<String>,
    /// The Gateways that this is so of; none if it is so of all.
    pub(super) held_gateways: Option<Arc<BTreeSet<NamespacedName>>>,
    /// Why the source is looked at now and then, rather than when something happens to it.
    pub(super) polling: Option<String>,
    /// Whether nothing of what is served is in the source any more, which waits for somebody to say that it is meant.
    pub(super) withdrawn: bool,
    /// Newer revisions of which something is missing; only of sources that have revisions.
    pub(super) incomplete: Arc<BTreeMap<NamespacedName, IncompleteRevision>>,
}

impl Known {
    /// Returns why what was accepted before is served of this Gateway.
    pub(super) fn held(&self, gateway: &NamespacedName) -> Option<&String> {
        let all_or_this = match &self.held_gateways {
            Some(some) => some.contains(gateway),
            None => true,
        };
        self.held.as_ref().filter(|_| all_or_this)
    }
}

/// Everything the engine's thread owns.
pub(super) struct Engine {
    pub(super) manifests: Manifests,
    pub(super) resolver: Resolver,
    /// Of routes that change and their neighbours.
    pub(super) of_neighbours: Resolver,
    pub(super) resolve: sesame_gateway_api::resolve::Options,
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<Known>,
    /// Gateways as they were accepted before this agent started.
    pub(super) accepted: Vec<ResolvedGateway>,
    /// What the last resolution found, beside the conditions, and where the objects were last.
    pub(super) found: Vec<(Problem, Option<(PathBuf, usize)>)>,
    /// What is to happen when no Gateway is left.
    pub(super) withdrawal: Withdrawal,
    /// To wait on in a thread.
    pub(super) runtime: tokio::runtime::Handle,
}

/// What objects say now.
enum Said {
    /// Of everything.
    All(Statuses, Vec<Problem>),
    /// Of some routes; nothing else has changed.
    Routes(Vec<OtherStatus>),
}

impl Engine {
    /// Runs until the watch ends. The first change is everything.
    pub(super) fn run(mut self, mut watch: Watch) {
        self.restore();
        while let Some(change) = self.next(&mut watch) {
            let scan = match &change {
                Change::All => self.manifests.scan(),
                Change::Paths(paths) => self.manifests.rescan_paths(paths),
            };
            self.take(&scan, &change, Timestamp::now());
            note_polling(&self.known, &watch);
            if let Err(error) = self.manifests.persist_last_good() {
                tracing::warn!(%error, "the last good manifests cannot be kept for the next start");
            }
        }
    }

    /// The next change, also of what is held.
    fn next(&mut self, watch: &mut Watch) -> Option<Change> {
        let Self {
            runtime,
            withdrawal,
            ..
        } = self;
        runtime.block_on(async {
            tokio::select! {
                change = watch.changes.recv() => change,
                () = withdrawal.decided() => Some(Change::Paths(Vec::new())),
            }
        })
    }

    /// Wants what was accepted before, until the manifests say otherwise.
    fn restore(&mut self) {
        let accepted = std::mem::take(&mut self.accepted);
        if accepted.is_empty() {
            return;
        }
        let keys = accepted.iter().flat_map(|gateway| gateway.keys.clone());
        self.manifests.keep(LastGoodKeys::of_pairs(keys));
        let gateways = render_all(
            &accepted
                .into_iter()
                .map(GatewayRevision::from)
                .collect::<Vec<_>>(),
            &self.host,
            &Targets::new(),
            Origin::Accepted,
        );
        self.known.send_modify(|known| {
            known.gateways = gateways;
            known.held = Some("the manifests have not been read yet".to_owned());
        });
    }

    fn take(&mut self, scan: &ScanReport, change: &Change, now: Timestamp) {
        if !scan.available {
            self.withdrawal.holds(None);
            self.hold(
                scan,
                "the manifests cannot be read; what was accepted last is served",
            );
            return;
        }
        let serves = !self.known.borrow().gateways.is_empty();
        // A directory that is not mounted yet looks just like this: no time makes it meant.
        if self.manifests.file_count() == 0 && serves && !self.withdrawal.begin(None) {
            self.hold(scan, "the manifests hold no object at all; what was accepted last is served until one appears, or `sesame-agent accept` lets it go");
            self.known.send_modify(|known| known.withdrawn = true);
            return;
        }
        let first = self.known.borrow().world.is_none();
        if scan.changed.is_empty() && !first && self.known.borrow().held.is_none() {
            self.publish_problems(scan);
            return;
        }
        let before = self.known.borrow().gateways.clone();
        let (mut offers, said) = match self.reroute(scan, &before) {
            Some((offers, statuses)) => (offers, Said::Routes(statuses)),
            None => self.resolve(),
        };
        let orphans = classless::orphans(self.manifests.world(), &before, &offers);
        let lost = match classless::classes(self.manifests.world(), &orphans) {
            Some(classes) => Some(classes),
            None if serves && offers.is_empty() => {
                Some("the manifests hold no Gateway any more".to_owned())
            }
            None => None,
        };
        let held = self.withdrawal.holds(lost.as_deref());
        let gateways = if held.is_some() && orphans.is_empty() {
            before.clone()
        } else {
            if held.is_some() {
                offers.extend(classless::as_before(&orphans, &before));
            }
            let cause = cause(change, first);
            let mut gateways = render_all(&offers, &self.host, &before, Origin::Source(&cause));
            classless::keep(&orphans, &before, &mut gateways);
            gateways
        };
        report_changes(&before, &gateways);
        let held_gateways = held
            .as_ref()
            .filter(|_| !orphans.is_empty())
            .map(|_| Arc::new(orphans));
        self.known.send_modify(|known| {
            known.gateways = gateways;
            known.available = true;
            known.withdrawn = held.is_some();
            known.held = held;
            known.held_gateways = held_gateways;
        });
        // From here on nothing is in the way of a change.
        drop((before, offers));
        self.note(said, now);
        self.publish_problems(scan);
    }

    fn resolve(&mut self) -> (Vec<GatewayRevision>, Said) {
        let Resolution {
            gateways,
            statuses,
            problems,
            last_good,
        } = self.resolver.resolve(self.manifests.world(), &self.resolve);
        self.manifests.keep(last_good);
        let offers = gateways.into_iter().map(GatewayRevision::from).collect();
        (offers, Said::All(statuses, problems))
    }

    /// Takes note of what was resolved.
    fn note(&mut self, said: Said, now: Timestamp) {
        let world = Some(self.manifests.world().clone());
        match said {
            Said::All(statuses, problems) => {
                self.found = problems.into_iter().map(|found| (found, None)).collect();
                let before = Arc::clone(&self.known.borrow().transitions);
                let transitions = Arc::new(before.after(&statuses, now));
                drop((statuses, before));
                self.known.send_modify(|known| {
                    known.world = world;
                    known.transitions = transitions;
                });
            }
            Said::Routes(statuses) => self.known.send_modify(|known| {
                known.world = world;
                Arc::make_mut(&mut known.transitions).follow(&statuses, now);
            }),
        }
    }

    /// Says what is wrong now; logs what was not wrong before.
    fn publish_problems(&mut self, scan: &ScanReport) {
        // A comment above moves an object; one that is gone, with what is held, stays where it was.
        for (problem, place) in &mut self.found {
            if let Some((file, line)) = self.manifests.location(&problem.object) {
                *place = Some((file.to_owned(), line));
            }
        }
        let mut problems: Vec<ProblemReport> =
            scan.problems.iter().map(ProblemReport::from).collect();
        problems.extend(self.found.iter().map(|(problem, place)| {
            let place = place.as_ref().map(|(file, line)| (file.as_path(), *line));
            ProblemReport::of_object(problem, place)
        }));
        let before = Arc::clone(&self.known.borrow().problems);
        if *before == problems {
            return;
        }
        for problem in problems.iter().filter(|problem| !before.contains(problem)) {
            let place = format!("{}:{}", problem.file, problem.line);
            if problem.severity == Severity::Error {
                tracing::error!(%place, "{}", problem.message);
            } else {
                tracing::warn!(%place, "{}", problem.message);
            }
        }
        self.known
            .send_modify(|known| known.problems = Arc::new(problems));
    }

    fn hold(&mut self, scan: &ScanReport, why: &str) {
        if self.known.borrow().held.as_deref() != Some(why) {
            tracing::warn!("{why}");
        }
        self.known.send_modify(|known| {
            known.available = scan.available;
            known.withdrawn = false;
            known.held = Some(why.to_owned());
            known.held_gateways = None;
        });
        self.publish_problems(scan);
    }
}

/// Takes note of whether there is inotify for the source.
pub(super) fn note_polling(known: &watch::Sender<Known>, watch: &Watch) {
    known.send_if_modified(|known| {
        let now = watch.polling();
        let other = known.polling != now;
        known.polling = now;
        other
    });
}

fn cause(change: &Change, first: bool) -> String {
    match change {
        _ if first => "the first reading of the manifests".to_owned(),
        Change::All => "a reading of all manifests".to_owned(),
        Change::Paths(paths) => match paths.as_slice() {
            [path] => format!("a change of {}", path.display()),
            more => format!("a change of {} files", more.len()),
        },
    }
}

pub(super) fn report_changes(before: &Targets, after: &Targets) {
    for (name, wanted) in after {
        if before.get(name).is_some_and(|old| Arc::ptr_eq(old, wanted)) {
            continue;
        }
        tracing::debug!(gateway = %name, cause = wanted.cause, "a new configuration is wanted");
        let rendering = wanted.rendered.problems.iter().map(ToString::to_string);
        for problem in rendering.chain(wanted.assignment.problems.iter().cloned()) {
            tracing::warn!(gateway = %name, "{problem}");
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        tracing::info!(gateway = %name, "the Gateway is gone or no longer accepted; its Envoy is stopped");
    }
}
