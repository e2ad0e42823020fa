//! The manifest engine: turns manifests into each Gateway's configuration, on one thread. It must
//! never wait for an Envoy.

mod classless;
mod incremental;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sesame_acme_client::AcmeState;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::Statuses;
use sesame_kinds::world::{Kind, LastGoodKeys, ServedTogether, World};
use sesame_proto::key_sets::KeySetCopies;
use sesame_resolver::incremental::RouteStatusChange;
use sesame_resolver::{
    Problem, RemoteKeySets, Resolution, ResolvedGateway, Resolver, UncoveredHostnames,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::report::transitions::Transitions;
use super::spans::EngineTimes;
use super::target::{HostSettings, Origin, Targets, apply_local, keep, render_all};
use super::withdrawal::Withdrawal;
use sesame_sources::acme::AcmeCertificates;
use sesame_sources::bundles::BundleReport;
use sesame_sources::key_sets::FetchedKeySets;
use sesame_sources::local::LocalMaterial;
use sesame_sources::manifests::{Manifests, ScanReport};
use sesame_sources::problem::{Severity, SourceProblem};
use sesame_sources::update::{GatewayRevision, IncompleteRevision};
use sesame_sources::watch::{Change, Watch};

#[derive(Clone, Debug, Default)]
pub(super) struct SourceState {
    pub(super) gateways: Targets,
    /// `None` until the manifests have been read. Readers compute statuses from these objects on
    /// demand, because storing the statuses would take too much memory.
    pub(super) world: Option<World>,
    /// How many times `world` has been published.
    pub(super) worlds: u64,
    pub(super) transitions: Arc<Transitions>,
    /// Set for manifests only.
    pub(super) uncovered_hostnames: Option<usize>,
    pub(super) problems: Arc<Vec<SourceProblem>>,
    pub(super) available: bool,
    pub(super) held: Option<String>,
    /// Gateways affected by `held`; `None` means all.
    pub(super) held_gateways: Option<Arc<BTreeSet<NamespacedName>>>,
    /// Why the source is polled instead of watched.
    pub(super) polling: Option<String>,
    pub(super) withdrawn: bool,
    pub(super) incomplete: Arc<BTreeMap<NamespacedName, IncompleteRevision>>,
    /// Manifest files that declare keys and trust bundles, by `Kind/namespace/name`.
    pub(super) key_files: Arc<BTreeMap<String, String>>,
    /// Local files that replace Secrets and ConfigMaps.
    pub(super) local: Arc<LocalMaterial>,
    pub(super) key_sets: Arc<KeySetCopies>,
    pub(super) acme: Arc<AcmeState>,
    pub(super) bundles: Arc<Vec<BundleReport>>,
    /// `None` if the engine is idle.
    pub(super) busy_since: Option<Instant>,
}

impl SourceState {
    pub(super) fn held(&self, gateway: &NamespacedName) -> Option<&String> {
        let all_or_this = match &self.held_gateways {
            Some(some) => some.contains(gateway),
            None => true,
        };
        self.held.as_ref().filter(|_| all_or_this)
    }
}

pub(super) struct Engine {
    pub(super) manifests: Manifests,
    pub(super) key_sets: FetchedKeySets,
    pub(super) acme: AcmeCertificates,
    pub(super) resolver: Resolver,
    pub(super) resolve: sesame_resolver::Options,
    pub(super) host: HostSettings,
    pub(super) known: watch::Sender<SourceState>,
    pub(super) accepted: Vec<ResolvedGateway>,
    pub(super) found: Vec<(Problem, Option<(PathBuf, usize)>)>,
    pub(super) withdrawal: Withdrawal,
    pub(super) times: EngineTimes,
}

enum ResolvedStatuses {
    Whole(Box<Statuses>, Vec<Problem>, UncoveredHostnames),
    /// Only the statuses of these routes have changed.
    Routes(Vec<RouteStatusChange>),
}

impl Engine {
    /// `watch` must first send [`Change::All`].
    pub(super) fn run(mut self, mut watch: Watch, runtime: &Runtime) {
        self.restore();
        let mut again = None;
        while let Some(change) = self.next(&mut watch, again, runtime) {
            record_busy(&self.known, true);
            self.times.begin_change(watch.first_seen());
            apply_local(&self.known, &self.host);
            let copies = self.key_sets.newest();
            let local = Arc::clone(&self.known.borrow().local);
            let namespace = &self.resolve.namespace;
            self.manifests
                .set_local(&local.usable, (namespace, &copies));
            self.manifests.set_ordered(self.acme.objects());
            let scan = match &change {
                Change::All => self.manifests.scan(),
                Change::Paths(paths) => self.manifests.rescan_paths(paths),
            };
            // Frequent changes must not postpone the next attempt.
            let earlier = again.filter(|_| change != Change::All);
            again = scan
                .again
                .map(|delay| earlier.unwrap_or_else(|| Instant::now() + delay));
            self.times.read();
            self.apply_scan(&scan, &change, Timestamp::now());
            self.request_key_sets(copies);
            self.publish_orders();
            record_polling(&self.known, &watch);
            if let Err(error) = self.manifests.persist_last_good() {
                tracing::warn!(%error, "cannot store the last valid manifests for the next start");
            }
            record_busy(&self.known, false);
        }
    }

    fn next(
        &mut self,
        watch: &mut Watch,
        again: Option<Instant>,
        runtime: &Runtime,
    ) -> Option<Change> {
        let Self {
            withdrawal,
            host,
            key_sets,
            acme,
            ..
        } = self;
        let due = again.unwrap_or_else(Instant::now).into();
        runtime.block_on(async {
            tokio::select! {
                change = watch.changes.recv() => change,
                () = host.changed() => Some(Change::Paths(Vec::new())),
                () = key_sets.changed() => Some(Change::Paths(Vec::new())),
                () = acme.changed() => Some(Change::Paths(Vec::new())),
                () = withdrawal.decided() => Some(Change::Paths(Vec::new())),
                () = tokio::time::sleep_until(due), if again.is_some() => Some(Change::All),
            }
        })
    }

    /// Requests nothing while a withdrawal is held, because the manifests may have vanished by
    /// mistake.
    fn request_key_sets(&self, copies: Arc<KeySetCopies>) {
        if self.known.borrow().held.is_none() {
            let sets = RemoteKeySets::of(self.manifests.world(), &self.resolve);
            self.key_sets.request(sets.requests());
        }
        self.known.send_if_modified(|known| {
            let differs = known.key_sets != copies;
            known.key_sets = copies;
            differs
        });
    }

    fn publish_orders(&self) {
        let acme = self.acme.state();
        self.known.send_if_modified(|known| {
            let differs = known.acme != acme;
            known.acme = acme;
            differs
        });
    }

    fn restore(&mut self) {
        let accepted = std::mem::take(&mut self.accepted);
        if accepted.is_empty() {
            return;
        }
        let keys = accepted.iter().flat_map(|gateway| gateway.keys.clone());
        let together = ServedTogether::of(accepted.iter().map(|gateway| &gateway.snapshot));
        self.manifests.keep(LastGoodKeys::of_pairs(keys), together);
        let gateways = render_all(
            &accepted
                .into_iter()
                .map(GatewayRevision::from)
                .collect::<Vec<_>>(),
            &self.host,
            &Targets::new(),
            Origin::Accepted,
            Instant::now(),
        );
        self.known.send_modify(|known| {
            known.gateways = gateways;
            known.held = Some("the manifests have not been read yet".to_owned());
        });
    }

    fn apply_scan(&mut self, scan: &ScanReport, change: &Change, now: Timestamp) {
        if !scan.available {
            self.withdrawal.holds(None);
            self.hold(
                scan,
                "the manifests cannot be read; serving the last accepted configuration",
            );
            return;
        }
        let serves = !self.known.borrow().gateways.is_empty();
        // The directory may be unmounted, so set no time limit.
        if self.manifests.file_count() == 0 && serves && !self.withdrawal.begin(None) {
            self.hold(scan, "the manifests contain no objects; the last accepted configuration is served until an object appears, or until `sesame-agent accept`");
            self.known.send_modify(|known| known.withdrawn = true);
            return;
        }
        let first = self.known.borrow().world.is_none();
        if scan.changed.is_empty() && !first && self.known.borrow().held.is_none() {
            self.publish_problems(scan);
            self.publish_key_files();
            return;
        }
        let before = self.known.borrow().gateways.clone();
        let (mut offers, statuses) = match self.resolve_changes(scan, &before) {
            Some((offers, statuses)) => (offers, ResolvedStatuses::Routes(statuses)),
            None => self.resolve(&before),
        };
        self.times.resolved();
        let orphans = classless::orphans(self.manifests.world(), &before, &offers);
        let lost = match classless::classes(self.manifests.world(), &orphans) {
            Some(classes) => Some(classes),
            None if serves && offers.is_empty() => {
                Some("the manifests no longer contain any Gateway".to_owned())
            }
            None => None,
        };
        let held = self.withdrawal.holds(lost.as_deref());
        let gateways = if held.is_some() && orphans.is_empty() {
            before.clone()
        } else {
            if held.is_some() {
                offers.extend(as_before(&orphans, &before));
            }
            let cause = cause(change, first);
            let (origin, now) = (Origin::Source(&cause), Instant::now());
            let mut gateways = render_all(&offers, &self.host, &before, origin, now);
            keep(&orphans, &before, &mut gateways);
            self.times.rendered_here(&before, &gateways, &scan.changed);
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
        // The targets are already published, so the steps below cannot delay a Gateway.
        drop((before, offers));
        self.record_statuses(statuses, now);
        self.publish_problems(scan);
    }

    /// Gateways with invalid parameters keep their configuration from `served`.
    fn resolve(&mut self, served: &Targets) -> (Vec<GatewayRevision>, ResolvedStatuses) {
        let Resolution {
            gateways,
            statuses,
            retained,
            problems,
            uncovered,
            last_good,
            served_together,
            last_parameters,
            unless_published,
            // Unserved Gateways have no target, and merged Gateways share one.
            unserved: _,
            merged: _,
            // Only a controller uses these.
            settings: _,
            services: _,
            layers_unknown: _,
            kept_layers: _,
            ocg_bundles: _,
            certificate_requests,
        } = self.resolver.resolve(self.manifests.world(), &self.resolve);
        self.manifests.keep(last_good, served_together);
        self.manifests.keep_parameters(last_parameters);
        self.acme.request(certificate_requests);
        let is_kept =
            |name: &NamespacedName| unless_published.contains(name) && served.contains_key(name);
        let now = gateways.into_iter().filter(|it| !is_kept(&it.gateway));
        let mut offers: Vec<GatewayRevision> = now.map(GatewayRevision::from).collect();
        offers.extend(as_before(retained.union(&unless_published), served));
        (
            offers,
            ResolvedStatuses::Whole(Box::new(statuses), problems, uncovered),
        )
    }

    fn record_statuses(&mut self, statuses: ResolvedStatuses, now: Timestamp) {
        let world = Some(self.manifests.world().clone());
        match statuses {
            ResolvedStatuses::Whole(statuses, problems, uncovered) => {
                self.found = problems.into_iter().map(|found| (found, None)).collect();
                let before = Arc::clone(&self.known.borrow().transitions);
                let transitions = Arc::new(before.after(&statuses, now));
                drop((statuses, before));
                self.known.send_modify(|known| {
                    known.world = world;
                    known.worlds += 1;
                    known.transitions = transitions;
                    known.uncovered_hostnames = Some(uncovered.values().map(Vec::len).sum());
                });
                self.publish_key_files();
            }
            ResolvedStatuses::Routes(statuses) => self.known.send_modify(|known| {
                known.world = world;
                known.worlds += 1;
                Arc::make_mut(&mut known.transitions).follow(&statuses, now);
            }),
        }
    }

    fn publish_key_files(&self) {
        let world = self.manifests.world();
        let secrets = world.secrets.iter().map(|it| (Kind::Secret, &it.metadata));
        let maps = world.config_maps.iter();
        let maps = maps.map(|it| (Kind::ConfigMap, &it.metadata));
        let bundles = world.cluster_trust_bundles.iter();
        let bundles = bundles.map(|it| (Kind::ClusterTrustBundle, &it.metadata));
        let files = secrets
            .chain(maps)
            .chain(bundles)
            .filter_map(|(kind, metadata)| {
                let object = kind.named(metadata.key());
                let (file, _) = self.manifests.location(&object)?;
                Some((object.to_string(), file.display().to_string()))
            });
        let files: BTreeMap<String, String> = files.collect();
        self.known
            .send_modify(|known| known.key_files = Arc::new(files));
    }

    fn publish_problems(&mut self, scan: &ScanReport) {
        // Edits may have moved objects. Deleted objects keep their last location.
        for (problem, place) in &mut self.found {
            if let Some((file, line)) = self.manifests.location(&problem.object) {
                *place = Some((file.to_owned(), line));
            }
        }
        let mut problems = scan.problems.to_vec();
        problems.extend(self.found.iter().map(|(problem, place)| {
            let place = place.as_ref().map(|(file, line)| (file.as_path(), *line));
            SourceProblem::of_object(problem, place)
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

pub(super) fn record_polling(known: &watch::Sender<SourceState>, watch: &Watch) {
    known.send_if_modified(|known| {
        let now = watch.polling();
        let other = known.polling != now;
        known.polling = now;
        other
    });
}

/// Does not wake receivers.
pub(super) fn record_busy(known: &watch::Sender<SourceState>, busy: bool) {
    known.send_if_modified(|known| {
        known.busy_since = busy.then(Instant::now);
        false
    });
}

fn cause(change: &Change, first: bool) -> String {
    match change {
        _ if first => "the first scan of the manifests".to_owned(),
        Change::All => "a scan of all manifests".to_owned(),
        Change::Paths(paths) => match paths.as_slice() {
            [path] => format!("a change to {}", path.display()),
            more => format!("a change to {} files", more.len()),
        },
    }
}

pub(super) fn report_changes(before: &Targets, after: &Targets) {
    for (name, wanted) in after {
        if before.get(name).is_some_and(|old| Arc::ptr_eq(old, wanted)) {
            continue;
        }
        tracing::debug!(gateway = %name, cause = wanted.cause, "the desired configuration has changed");
        let rendering = wanted.rendered.problems.iter().map(ToString::to_string);
        for problem in rendering.chain(wanted.assignment.problems.iter().cloned()) {
            tracing::warn!(gateway = %name, "{problem}");
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        tracing::info!(gateway = %name, "the Gateway was deleted or is no longer accepted; stopping its Envoy");
    }
}

/// Skips Gateways that are not served.
fn as_before<'a>(
    gateways: impl IntoIterator<Item = &'a NamespacedName>,
    before: &'a Targets,
) -> impl Iterator<Item = GatewayRevision> {
    gateways
        .into_iter()
        .filter_map(|name| before.get_key_value(name))
        .map(|(gateway, target)| target.to_revision(gateway))
}
