//! A transaction that survives refusals: what Envoy refuses is found and left out, and the rest is published.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::candidate::{Candidate, Kept, Published, Served};
use super::exclude::exclude;
use super::judge::{EnvoyJudge, NoVerdict};
use super::memory::{Culprit, Culprits, still_there};
use super::piece::{Digest, Piece, Pieces};
use super::search::{Limits, Search, SearchEnd};
use super::sockets::Unbound;
use super::words::{Named, let_down_by_host, named};
use crate::apply::{Applier, ApplyError, Outcome, Refusal, Report, Wanted};
use crate::envoy::Admin;
use crate::xds::{Kind, Subscription};
use sesame_proto::encoded::{EncodedSnapshot, serials};
use sesame_render::Rendered;

/// How often one publication is tried: each time with less.
const ROUNDS: usize = 12;

/// What is left out at one Envoy, and why.
#[derive(Debug)]
pub struct Quarantine {
    binary: PathBuf,
    scratch: PathBuf,
    limits: Limits,
    culprits: Culprits,
    good: HashSet<Digest>,
    unbound: Unbound,
    /// Envoy's words, while a search has not come to an end.
    unfinished: Option<Vec<String>>,
}

/// What was learned from a refusal.
enum Lesson {
    Something,
    Nothing,
    Unfinished,
}

impl Quarantine {
    /// An empty one. `scratch` is a private directory on a file system that is not on disk.
    pub fn new(binary: PathBuf, scratch: PathBuf) -> Self {
        Self {
            binary,
            scratch,
            limits: Limits::default(),
            culprits: Culprits::new(),
            good: HashSet::new(),
            unbound: Unbound::default(),
            unfinished: None,
        }
    }

    /// The culprits that are left out now.
    pub fn culprits(&self) -> &Culprits {
        &self.culprits
    }

    /// The listeners that are left out now because they cannot be opened.
    pub fn unbound(&self) -> &Unbound {
        &self.unbound
    }

    /// When [`Quarantine::probe`] wants to be called.
    pub fn next_probe(&self) -> Option<Instant> {
        self.unbound.next()
    }

    /// Looks whether a listener could be opened now; then the candidate is to be published again.
    pub fn probe(&mut self) -> bool {
        self.unbound.probe()
    }

    /// What came to be known of another Envoy process does not hold for a new one: it may not have loaded anything.
    /// The next publication is validated before it is tried.
    pub fn suspect(&mut self) {
        self.unfinished.get_or_insert_default();
    }

    /// Brings Envoy to the candidate, or to what is left of it. `accepted` is what Envoy serves now. A search ends
    /// early when `newer` says that there is something newer.
    pub async fn publish(
        &mut self,
        applier: &mut Applier,
        envoy: &Admin,
        candidate: Candidate<'_>,
        accepted: Option<&EncodedSnapshot>,
        newer: impl Fn() -> bool + Send + Sync,
    ) -> Result<Published, ApplyError> {
        if !self.culprits.is_empty() {
            self.culprits = still_there(&self.culprits, &candidate.packed.snapshot());
        }
        self.unbound.keep(candidate.rendered);
        let mut words: Vec<String> = Vec::new();
        if let Some(before) = self.unfinished.clone() {
            // Trying it would cost a refusal that is sure to come.
            words.extend(before);
            if let Lesson::Unfinished = self.search(candidate, accepted, &newer, &words).await {
                return Ok(Published::Kept(Kept::Searching { envoy_words: words }));
            }
        }
        for _ in 0..ROUNDS {
            let served = self.left_of(candidate).await;
            let left = served.as_ref().map(|served| serials(&served.snapshot));
            let rendered = served
                .as_ref()
                .map_or(candidate.rendered, |served| &served.rendered);
            let wanted = Wanted {
                rendered,
                serials: left.as_ref().unwrap_or(candidate.packed.serials()),
                // That the source wants none has waited until it was sure to be meant. That nothing is left of what it
                // wants is never meant.
                may_empty: candidate.packed.counts().listeners == 0
                    || self.none_could_be_opened(applier),
            };
            let report = match applier.apply(wanted, Some(envoy)).await {
                Ok(report) => report,
                Err(error @ ApplyError::Empties { .. }) => {
                    if words.is_empty() {
                        words.push(error.to_string());
                    }
                    return Ok(Published::Kept(Kept::Refused { envoy_words: words }));
                }
                Err(error) => return Err(error),
            };
            let reason = match &report.outcome {
                Outcome::Unchanged | Outcome::Applied => {
                    let unproven = unproven_keys(&report);
                    if !unproven.is_empty() && self.judge_keys(candidate, &unproven, &newer).await {
                        continue;
                    }
                    self.unbound.accepted();
                    return Ok(Published::Accepted {
                        report,
                        served: served.map(Box::new),
                    });
                }
                Outcome::Refused(refusal) if let_down_by_host(&refusal.envoy_words) => {
                    format!(
                        "Envoy cannot read its files: {}",
                        refusal.envoy_words.join("; ")
                    )
                }
                Outcome::Refused(refusal) => {
                    words.clone_from(&refusal.envoy_words);
                    match self
                        .learn(refusal, candidate, rendered, accepted, &newer)
                        .await
                    {
                        Lesson::Something => continue,
                        Lesson::Nothing => {
                            return Ok(Published::Kept(Kept::Refused { envoy_words: words }));
                        }
                        Lesson::Unfinished => {
                            return Ok(Published::Kept(Kept::Searching { envoy_words: words }));
                        }
                    }
                }
                Outcome::Unseen { subscriptions, .. } => {
                    format!("Envoy does not react to {subscriptions:?}")
                }
                Outcome::Gone { reason, .. } => format!("Envoy does not answer: {reason}"),
                Outcome::NotRunning => "Envoy is not running".to_owned(),
            };
            return Ok(Published::Kept(Kept::NotYet { reason }));
        }
        Ok(Published::Kept(Kept::Refused { envoy_words: words }))
    }

    /// The candidate without what is left out; `None` if that is nothing.
    async fn left_of(&self, candidate: Candidate<'_>) -> Option<Served> {
        if self.culprits.is_empty() {
            self.unbound.iter().next()?;
            let mut rendered = candidate.rendered.clone();
            self.unbound.leave_out(&mut rendered);
            return Some(Served {
                snapshot: candidate.packed.snapshot(),
                rendered,
            });
        }
        let packed = Arc::clone(candidate.packed);
        let (culprits, options) = (self.culprits.clone(), candidate.options.clone());
        let left = move || {
            let snapshot = exclude(&packed.snapshot(), &culprits);
            let rendered = sesame_render::render(&snapshot, packed.keys(), &options);
            Served { snapshot, rendered }
        };
        let mut served = match tokio::task::spawn_blocking(left.clone()).await {
            Ok(served) => served,
            // Only at the end of the runtime.
            Err(_) => left(),
        };
        self.unbound.leave_out(&mut served.rendered);
        Some(served)
    }

    /// An Envoy that could not open any of its listeners may be left with none.
    fn none_could_be_opened(&self, applier: &Applier) -> bool {
        let on_disk = &applier.on_disk().content.listeners;
        on_disk.iter().all(|l| self.unbound.has(&l.name))
    }

    /// Finds out what to leave out after a refusal of `rendered`.
    async fn learn(
        &mut self,
        refusal: &Refusal,
        candidate: Candidate<'_>,
        rendered: &Rendered,
        accepted: Option<&EncodedSnapshot>,
        newer: &(impl Fn() -> bool + Send + Sync),
    ) -> Lesson {
        let named = named(&refusal.envoy_words);
        let mut learned = false;
        for named in &named {
            if let Named::Unbound { listener, words } = named {
                let now = Timestamp::now();
                learned |= self.unbound.add(listener, words.clone(), None, now);
            }
        }
        if learned {
            return Lesson::Something;
        }
        tracing::warn!(words = %refusal.envoy_words.join("; "), "Envoy refuses a change; looking for what it refuses");
        match self
            .search(candidate, accepted, newer, &refusal.envoy_words)
            .await
        {
            Lesson::Nothing => {}
            lesson => return lesson,
        }
        // Validation accepts what Envoy refuses: only its words are left.
        for named in named {
            learned |= match named {
                Named::Unbound { .. } => false,
                Named::Listener { listener, words } => {
                    let refused = rendered.listeners.iter().find(|l| l.name == listener);
                    let now = Timestamp::now();
                    self.unbound.add(&listener, words, refused.cloned(), now)
                }
                Named::Piece { piece, words } => self.blame(candidate, piece, words),
            };
        }
        let words = refusal.envoy_words.join("; ");
        for subscription in &refusal.subscriptions {
            let name = subscription.name.clone();
            let piece = match subscription.kind {
                Kind::Secret => Piece::Key(name),
                Kind::Endpoints => Piece::Endpoints(name),
                Kind::Listeners | Kind::Clusters | Kind::RouteTable => continue,
            };
            learned |= self.blame(candidate, piece, words.clone());
        }
        if learned {
            Lesson::Something
        } else {
            Lesson::Nothing
        }
    }

    /// `false` if the candidate has no such piece, or it is left out already.
    fn blame(&mut self, candidate: Candidate<'_>, piece: Piece, envoy_words: String) -> bool {
        let snapshot = candidate.packed.snapshot();
        let pieces = Pieces::new(&snapshot);
        let Some(content) = pieces.of.get(&piece) else {
            return false;
        };
        if self.culprits.contains_key(&piece) {
            return false;
        }
        let culprit = Culprit {
            digest: content.digest(),
            envoy_words,
            since: Timestamp::now(),
            dropped: false,
        };
        self.culprits.insert(piece, culprit);
        true
    }

    async fn search(
        &mut self,
        candidate: Candidate<'_>,
        accepted: Option<&EncodedSnapshot>,
        newer: &(impl Fn() -> bool + Send + Sync),
        words: &[String],
    ) -> Lesson {
        let before: Vec<Piece> = self.culprits.keys().cloned().collect();
        let judge = self.judge(candidate);
        let mut search = Search {
            judge: &judge,
            limits: self.limits,
            stop: newer,
            now: Timestamp::now(),
            culprits: &mut self.culprits,
            good: &mut self.good,
            runs: 0,
            learned: false,
        };
        let start = Instant::now();
        let accepted = accepted.map(EncodedSnapshot::snapshot);
        let end = search
            .run(&candidate.packed.snapshot(), accepted.as_ref())
            .await;
        let runs = search.runs;
        for (piece, culprit) in self.culprits.iter().filter(|(p, _)| !before.contains(p)) {
            tracing::error!(object = %piece, words = culprit.envoy_words, "Envoy refuses this; it is left out");
        }
        tracing::info!(runs, took = ?start.elapsed(), "searched for what Envoy refuses");
        let learned = self.culprits.len() > before.len();
        self.unfinished = None;
        match end {
            Ok(SearchEnd::Clean) if !learned => Lesson::Nothing,
            Ok(SearchEnd::Clean) => Lesson::Something,
            Ok(SearchEnd::Unfinished) => {
                self.unfinished = Some(words.to_vec());
                Lesson::Unfinished
            }
            Ok(SearchEnd::Unexplained { envoy_words }) => {
                tracing::error!(words = envoy_words, "what Envoy refuses could not be found");
                if learned {
                    Lesson::Something
                } else {
                    Lesson::Nothing
                }
            }
            Err(error) => {
                no_verdict(&error);
                if learned {
                    Lesson::Something
                } else {
                    Lesson::Nothing
                }
            }
        }
    }

    /// Judges keys whose certificate nobody shows after the change; `true` if one is refused.
    async fn judge_keys(
        &mut self,
        candidate: Candidate<'_>,
        names: &[String],
        newer: &(impl Fn() -> bool + Send + Sync),
    ) -> bool {
        let judge = self.judge(candidate);
        let before = self.culprits.len();
        let mut search = Search {
            judge: &judge,
            limits: self.limits,
            stop: newer,
            now: Timestamp::now(),
            culprits: &mut self.culprits,
            good: &mut self.good,
            runs: 0,
            learned: false,
        };
        if let Err(error) = search.keys(&candidate.packed.snapshot(), names).await {
            no_verdict(&error);
        }
        self.culprits.len() > before
    }

    fn judge(&self, candidate: Candidate<'_>) -> EnvoyJudge {
        EnvoyJudge {
            binary: self.binary.clone(),
            scratch: self.scratch.clone(),
            packed: Arc::clone(candidate.packed),
            options: candidate.options.clone(),
        }
    }
}

fn no_verdict(error: &NoVerdict) {
    tracing::error!(%error, "Envoy cannot be asked what it refuses");
}

/// Secrets that Envoy took without showing their certificate: it says so of bad pairs, too.
fn unproven_keys(report: &Report) -> Vec<String> {
    report
        .unverified
        .iter()
        .filter(|subscription: &&Subscription| subscription.kind == Kind::Secret)
        .map(|subscription| subscription.name.clone())
        .collect()
}
