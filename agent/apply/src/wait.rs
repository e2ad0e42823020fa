//! Waits for proof that Envoy has accepted the written files.
//!
//! A file is accepted once Envoy reports its version, a digest of the content, as `version_text`.
//! Any rejection leaves `version_text` unchanged. Envoy reads files, logs errors and serves admin
//! requests on one thread. If a response lacks the version, an error in Envoy's log proves a
//! rejection; without an error, Envoy has not read the file yet.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::journal::Files;
use super::plan::Phase;
use super::report::{ApplyReport, Outcome, Refusal};
use super::shown_endpoints::{self, ShownEndpoints};
use sesame_envoy::admin::{Admin, AdminError, ListenerCounts, Readiness};
use sesame_envoy::log::{EnvoyLog, Mark};
use sesame_render::xds::{Subscription, VersionTexts, XdsKind};

/// Time limits for waiting for Envoy. They do not affect correctness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Maximum duration of a step, as long as Envoy responds.
    pub step: Duration,
    /// Maximum time to wait for warming. The transaction then continues.
    pub warming: Duration,
    /// If Envoy has not reacted to a file for this long, the file is renamed into place again.
    pub unseen: Duration,
    /// If Envoy's admin socket has refused connections for this long, Envoy counts as dead.
    pub gone: Duration,
    /// Maximum time to wait for a serial number to appear in `/certs`.
    pub serial: Duration,
    /// Maximum time to wait until the worker threads use a changed listener.
    pub workers: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            step: Duration::from_secs(60),
            warming: Duration::from_secs(15),
            unseen: Duration::from_secs(1),
            gone: Duration::from_millis(500),
            serial: Duration::from_secs(1),
            workers: Duration::from_secs(1),
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// After this many responses, Envoy's main thread must have handled pending file events. Elapsed
/// time would prove nothing on a busy host.
const ANSWERS: u32 = 10;
/// How long to wait for other results after an error about one file.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) subscription: Subscription,
    pub(crate) version: String,
    /// If false, a missing subscription counts as success.
    pub(crate) must_exist: bool,
    /// True for a new file. Envoy's existing subscription may be about to end, so an unexpected
    /// version is not an error.
    pub(crate) advisory: bool,
    /// `None` unless the write changes the addresses in an existing endpoint set.
    pub(crate) shown: Option<ShownEndpoints>,
}

pub(crate) struct Watcher<'a> {
    pub(crate) envoy: &'a Admin,
    pub(crate) log: &'a EnvoyLog,
    pub(crate) files: &'a Files,
    pub(crate) patience: Patience,
}

impl Watcher<'_> {
    pub(crate) async fn accepted(
        &self,
        phase: Phase,
        expected: &[Expectation],
        mark: Mark,
        report: &mut ApplyReport,
    ) -> Result<(), Outcome> {
        let start = Instant::now();
        let mut backoff = PollBackoff::new();
        let mut complained: Option<Instant> = None;
        let mut retry: Option<Retry> = None;
        let mut outage = Outage::default();
        let mut answers = 0;
        let mut by_endpoints = shown_endpoints::filter(expected);
        loop {
            match self.pending(expected, &mut by_endpoints).await {
                Ok(pending) => {
                    outage = Outage::default();
                    answers += 1;
                    if pending.is_empty() {
                        break;
                    }
                    let complaints = self.log.complaints_since(mark);
                    if answers >= ANSWERS {
                        by_endpoints = None;
                    }
                    let refused_files = complaints.iter().filter(|c| c.whole_file).count();
                    if refused_files > 0 {
                        let since = complained.get_or_insert_with(Instant::now).elapsed();
                        if refused_files >= pending.len() || since > SETTLE {
                            return Err(Outcome::Refused(Refusal {
                                phase,
                                subscriptions: names(&pending),
                                envoy_words: complaints.into_iter().map(|c| c.words).collect(),
                            }));
                        }
                    } else if answers >= ANSWERS
                        && retry.as_ref().map_or(start, |retry| retry.at).elapsed()
                            >= self.patience.unseen
                    {
                        answers = 0;
                        let done = self.unseen(phase, &pending, &mut retry, report).await;
                        if let Some(done) = done {
                            return done;
                        }
                    }
                    if start.elapsed() > self.patience.step {
                        return Err(Outcome::Unseen {
                            phase,
                            subscriptions: names(&pending),
                        });
                    }
                }
                Err(error) => {
                    let busy = !error.is_gone() && start.elapsed() < self.patience.step;
                    if !busy && outage.longer_than(self.patience.gone) {
                        return Err(gone(phase, &error));
                    }
                }
            }
            backoff.pause().await;
        }
        if let Some(Retry { files, .. }) = retry {
            report.renamed_again.extend(files);
        }
        Ok(())
    }

    async fn pending<'a>(
        &self,
        expected: &'a [Expectation],
        by_endpoints: &mut Option<String>,
    ) -> Result<Vec<&'a Expectation>, AdminError> {
        if let Some(filter) = by_endpoints {
            let clusters = self.envoy.endpoints(filter).await;
            match clusters.map(|clusters| shown_endpoints::pending(expected, &clusters)) {
                Ok(Some(pending)) => return Ok(pending),
                Err(error) if error.is_gone() => return Err(error),
                Ok(None) | Err(_) => *by_endpoints = None,
            }
        }
        let versions = self.versions(expected).await?;
        Ok(pending(expected, &versions))
    }

    async fn versions(&self, expected: &[Expectation]) -> Result<VersionTexts, AdminError> {
        let has = |kind| expected.iter().any(|it| it.subscription.kind == kind);
        if has(XdsKind::Endpoints) {
            return self.envoy.version_texts().await;
        }
        if !has(XdsKind::Secret) {
            let versions = self.envoy.versions_of_lists_and_route_tables().await?;
            let is_reported =
                |it: &Expectation| versions.of(&it.subscription, &it.version).is_some();
            if expected.iter().all(is_reported) {
                return Ok(versions);
            }
            // That response omits names that are invalid as labels, and files that no resource
            // uses.
        }
        self.envoy.version_texts_without_endpoints().await
    }

    /// Returns `None` if the caller should keep waiting.
    async fn unseen(
        &self,
        phase: Phase,
        pending: &[&Expectation],
        retry: &mut Option<Retry>,
        report: &mut ApplyReport,
    ) -> Option<Result<(), Outcome>> {
        if pending.iter().all(|e| e.advisory) {
            report.unverified.extend(names(pending));
            return Some(Ok(()));
        }
        // Before Envoy is live, it subscribes to one kind of resource after another.
        if !matches!(self.envoy.ready().await, Ok(Readiness::Live)) {
            return None;
        }
        let counters = self.attempts(pending).await;
        let Some(before) = retry else {
            for expectation in pending {
                let subscription = &expectation.subscription;
                if let Err(error) = self.files.place_again(subscription) {
                    tracing::warn!(%error, ?subscription, "cannot rename the file again");
                }
            }
            *retry = Some(Retry {
                at: Instant::now(),
                files: names(pending),
                counters,
            });
            return None;
        };
        let refused: Vec<Subscription> = names(pending)
            .into_iter()
            .filter(|s| counters.get(s) > before.counters.get(s))
            .collect();
        Some(Err(if refused.is_empty() {
            Outcome::Unseen {
                phase,
                subscriptions: names(pending),
            }
        } else {
            Outcome::Refused(Refusal {
                phase,
                subscriptions: refused,
                envoy_words: vec![format!(
                    "Envoy counted an update as rejected; its log {} does not say why",
                    self.log.path().display()
                )],
            })
        }))
    }

    /// Returns the number of rejected updates.
    async fn attempts(&self, pending: &[&Expectation]) -> BTreeMap<Subscription, u64> {
        let counters = self
            .envoy
            .counters(r"\.update_(rejected|failure)$")
            .await
            .unwrap_or_default();
        sum_by_subscription(&names(pending), &counters)
    }

    /// At the time limit, records the clusters that are still warming.
    pub(crate) async fn warm(&self, phase: Phase, report: &mut ApplyReport) -> Result<(), Outcome> {
        let start = Instant::now();
        let mut backoff = PollBackoff::new();
        let mut outage = Outage::default();
        loop {
            match self.envoy.warming().await {
                Ok(false) => return Ok(()),
                Ok(true) => outage = Outage::default(),
                Err(error) => {
                    if error.is_gone() && outage.longer_than(self.patience.gone) {
                        return Err(gone(phase, &error));
                    }
                }
            }
            if start.elapsed() > self.patience.warming {
                let names = self.envoy.warming_clusters().await.unwrap_or_default();
                report.still_warming.extend(names);
                return Ok(());
            }
            backoff.pause().await;
        }
    }

    /// Envoy's main thread accepts a list before the worker threads use it. Until they do, new
    /// connections get the old filter chains.
    ///
    /// Returns how many times a worker failed to start a listener. Envoy has removed both versions
    /// of such a listener.
    pub(super) async fn await_workers(&self, before: Option<ListenerCounts>) -> u64 {
        let Some(before) = before else {
            return 0;
        };
        let start = Instant::now();
        let mut backoff = PollBackoff::new();
        loop {
            let counts = self.envoy.listener_counts().await.unwrap_or(before);
            if counts.all_taken_since(&before) || start.elapsed() > self.patience.workers {
                return counts.failed.saturating_sub(before.failed);
            }
            backoff.pause().await;
        }
    }

    /// Returns the subscriptions whose serial number is still missing at the time limit.
    pub(crate) async fn missing_serials(
        &self,
        mut wanted: BTreeMap<Subscription, String>,
    ) -> Vec<Subscription> {
        let start = Instant::now();
        let mut backoff = PollBackoff::new();
        while !wanted.is_empty() {
            if let Ok(serials) = self.envoy.certificate_serials().await {
                wanted.retain(|_, serial| !serials.contains(serial));
            }
            if start.elapsed() > self.patience.serial {
                break;
            }
            backoff.pause().await;
        }
        wanted.into_keys().collect()
    }
}

struct Retry {
    at: Instant,
    files: Vec<Subscription>,
    counters: BTreeMap<Subscription, u64>,
}

pub(crate) struct PollBackoff(Duration);

impl PollBackoff {
    pub(crate) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(crate) async fn pause(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 + self.0 / 4).min(LONGEST_PAUSE);
    }
}

#[derive(Default)]
struct Outage(Option<Instant>);

impl Outage {
    fn longer_than(&mut self, limit: Duration) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > limit
    }
}

fn pending<'a>(expected: &'a [Expectation], versions: &VersionTexts) -> Vec<&'a Expectation> {
    expected
        .iter()
        .filter(|e| match versions.of(&e.subscription, &e.version) {
            Some(version) => version != e.version,
            None => e.must_exist,
        })
        .collect()
}

fn names(expected: &[&Expectation]) -> Vec<Subscription> {
    expected.iter().map(|e| e.subscription.clone()).collect()
}

fn gone(phase: Phase, error: &AdminError) -> Outcome {
    Outcome::Gone {
        phase,
        reason: error.to_string(),
    }
}

/// Adds up each subscription's counters, whose names differ only in the last segment.
pub(crate) fn sum_by_subscription(
    subscriptions: &[Subscription],
    counters: &HashMap<String, u64>,
) -> BTreeMap<Subscription, u64> {
    let mut sums = BTreeMap::new();
    for subscription in subscriptions {
        let own = counters.iter().filter(|(name, _)| {
            name.rsplit_once('.')
                .is_some_and(|(scope, _)| subscription.owns_stat(scope))
        });
        sums.insert(subscription.clone(), own.map(|(_, value)| value).sum());
    }
    sums
}

/// Returns `None` unless `phase` writes listeners.
pub(super) async fn listener_counts(phase: Phase, envoy: &Admin) -> Option<ListenerCounts> {
    match phase {
        Phase::ListenersUnion | Phase::Listeners => envoy.listener_counts().await.ok(),
        _ => None,
    }
}
