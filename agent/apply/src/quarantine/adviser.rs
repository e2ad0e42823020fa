//! Chooses parts to exclude from an Envoy's target configuration after rejections.
//!
//! Never publishes anything. `publish` calls this module before each transaction and after each
//! rejection.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{Rendered, Resource};

use super::accepted_keys::AcceptedKeys;
use super::envoy_log::{RefusedResource, named};
use super::exclude::exclude;
use super::judge::{EnvoyJudge, NoVerdict};
use super::memory::{Culprit, Culprits, MatchVerdict, still_there};
use super::piece::{Digest, Piece, Pieces};
use super::search::{Search, SearchEnd, SearchLimits};
use super::target::{Configuration, Reduced};
use super::unbound::Unbound;
use crate::Refusal;
use sesame_host::reserve::EnvoyInstances;
use sesame_render::xds::XdsKind;

/// The parts that are excluded from one Envoy's configuration.
#[derive(Debug)]
pub struct Quarantine {
    binary: PathBuf,
    scratch: PathBuf,
    limits: SearchLimits,
    culprits: Culprits,
    good: HashSet<Digest>,
    unbound: Unbound,
    unfinished: Option<Vec<String>>,
    accepted: Option<Arc<EncodedSnapshot>>,
    /// Configuration that Envoy last accepted, under this agent or an earlier one.
    last_good_keys: Option<Arc<EncodedSnapshot>>,
    instances: EnvoyInstances,
}

/// What to do after a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Publish again without the culprits.
    Retry,
    /// Keep the accepted configuration, because no further part can be excluded.
    Keep,
    /// Keep the accepted configuration until the next publication continues the search.
    Resume,
}

impl Quarantine {
    /// Excludes nothing. `scratch` must be a private directory in memory, because it will contain
    /// keys.
    pub fn new(binary: PathBuf, scratch: PathBuf) -> Self {
        Self {
            binary,
            scratch,
            limits: SearchLimits::default(),
            culprits: Culprits::new(),
            good: HashSet::new(),
            unbound: Unbound::default(),
            unfinished: None,
            accepted: None,
            last_good_keys: None,
            instances: EnvoyInstances::default(),
        }
    }

    /// Sets the reserve of inotify instances for validations.
    #[must_use]
    pub fn with_instances(self, instances: EnvoyInstances) -> Self {
        Self { instances, ..self }
    }

    /// Sets the configuration that an earlier agent's Envoy accepted, to restore its keys if
    /// necessary.
    #[must_use]
    pub fn with_last_good_keys(self, of: Option<Arc<EncodedSnapshot>>) -> Self {
        Self {
            last_good_keys: of,
            ..self
        }
    }

    /// Returns true if nothing is excluded and no search is unfinished.
    pub fn is_clear(&self) -> bool {
        self.culprits.is_empty()
            && self.unfinished.is_none()
            && self.unbound.iter().next().is_none()
    }

    /// Returns the rejected pieces, including keys that were restored.
    pub fn culprits(&self) -> &Culprits {
        &self.culprits
    }

    /// Returns the listeners that cannot be opened.
    pub fn unbound(&self) -> &Unbound {
        &self.unbound
    }

    /// Returns when to call [`Quarantine::probe`] next.
    pub fn next_probe(&self) -> Option<Instant> {
        self.unbound.next()
    }

    /// Returns true if an excluded listener can be opened now. The caller must then republish.
    pub fn probe(&mut self) -> bool {
        self.unbound.probe()
    }

    /// Starts the next publication with a search. Call this after Envoy restarts, because the new
    /// process may not have accepted its files.
    pub fn suspect(&mut self) {
        self.unfinished.get_or_insert_default();
    }

    /// Forgets culprits and listeners that have changed or are not in this target.
    pub fn follow(&mut self, target: Configuration<'_>) {
        if !self.culprits.is_empty() {
            self.culprits = still_there(&self.culprits, &target.encoded.snapshot());
        }
        self.unbound.keep(target.rendered);
    }

    /// Returns Envoy's messages if the search for culprits is unfinished. Envoy would reject the
    /// target again.
    pub fn unfinished(&self) -> Option<&[String]> {
        self.unfinished.as_deref()
    }

    /// Records that this Envoy now serves a configuration.
    pub fn accept(&mut self, served: &Arc<EncodedSnapshot>) {
        self.unbound.accepted();
        self.accepted = Some(Arc::clone(served));
        self.last_good_keys = Some(Arc::clone(served));
    }

    /// Returns the target without excluded parts, or `None` if nothing is excluded.
    pub async fn reduce(&self, target: Configuration<'_>) -> Option<Reduced> {
        if self.culprits.is_empty() {
            self.unbound.iter().next()?;
            let mut rendered = target.rendered.clone();
            self.unbound.leave_out(&mut rendered);
            return Some(Reduced {
                encoded: Arc::clone(target.encoded),
                rendered,
            });
        }
        let encoded = Arc::clone(target.encoded);
        let (culprits, options) = (self.culprits.clone(), target.options.clone());
        let accepted = self.last_good_keys.clone();
        let reduce = move || {
            let snapshot = exclude(&encoded.snapshot(), &culprits);
            let accepted = accepted_keys(&encoded, accepted.as_deref());
            let pairs = accepted.pairs(&snapshot, encoded.keys());
            let rendered = sesame_render::render(&snapshot, &pairs, &options);
            let named: BTreeSet<&str> = snapshot.keys.iter().map(|key| &*key.name).collect();
            let keys = pairs.iter().filter(|pair| named.contains(&*pair.name));
            let keys = keys.cloned().collect();
            Reduced {
                encoded: Arc::new(EncodedSnapshot::new(&snapshot, keys)),
                rendered,
            }
        };
        let mut reduced = match tokio::task::spawn_blocking(reduce.clone()).await {
            Ok(reduced) => reduced,
            // The task fails only if the runtime is shutting down.
            Err(_) => reduce(),
        };
        self.unbound.leave_out(&mut reduced.rendered);
        Some(reduced)
    }

    /// Returns true if all of these listeners are excluded.
    pub fn leaves_none(&self, listeners: &[Resource]) -> bool {
        listeners.iter().all(|l| self.unbound.has(&l.name))
    }

    /// Finds the parts to exclude after Envoy rejected `rendered`, the possibly reduced target.
    /// Stops early once `newer` returns true, which means that a newer target exists.
    pub async fn learn(
        &mut self,
        refusal: &Refusal,
        target: Configuration<'_>,
        rendered: &Rendered,
        newer: &(impl Fn() -> bool + Send + Sync),
    ) -> Advice {
        let named = named(&refusal.envoy_words);
        let mut learned = false;
        for named in &named {
            if let RefusedResource::Unbound { listener, words } = named {
                let now = Timestamp::now();
                learned |= self.unbound.add(listener, words.clone(), None, now);
            }
        }
        if learned {
            return Advice::Retry;
        }
        tracing::warn!(words = %refusal.envoy_words.join("; "), "Envoy rejects a change; searching for the rejected parts");
        match self.search(target, newer, &refusal.envoy_words).await {
            Advice::Keep => {}
            advice => return advice,
        }
        // The search found no new culprit, so Envoy's messages are the only evidence.
        for named in named {
            learned |= match named {
                RefusedResource::Unbound { .. } => false,
                RefusedResource::Listener { listener, words } => {
                    let refused = rendered.listeners.iter().find(|l| l.name == listener);
                    let now = Timestamp::now();
                    self.unbound.add(&listener, words, refused.cloned(), now)
                }
                RefusedResource::Piece { piece, words } => self.blame(target, piece, words),
            };
        }
        let words = refusal.envoy_words.join("; ");
        for subscription in &refusal.subscriptions {
            let name = subscription.name.clone();
            let piece = match subscription.kind {
                XdsKind::Secret => Piece::Key(name),
                XdsKind::Endpoints => Piece::Endpoints(name),
                XdsKind::Listeners | XdsKind::Clusters | XdsKind::RouteTable | XdsKind::Filter => {
                    continue;
                }
            };
            learned |= self.blame(target, piece, words.clone());
        }
        advice(learned)
    }

    /// Returns `false` if the piece is not in the target or already a culprit.
    fn blame(&mut self, target: Configuration<'_>, piece: Piece, envoy_words: String) -> bool {
        let snapshot = target.encoded.snapshot();
        let pieces = Pieces::new(&snapshot);
        let Some(content) = pieces.of.get(&piece) else {
            return false;
        };
        if self.culprits.contains_key(&piece) {
            return false;
        }
        let accepted = accepted_keys(target.encoded, self.last_good_keys.as_deref());
        let culprit = Culprit {
            digest: content.digest(),
            envoy_words,
            since: Timestamp::now(),
            match_verdict: MatchVerdict::Accepted,
            put_back: accepted.before(&piece),
        };
        self.culprits.insert(piece, culprit);
        true
    }

    /// Searches the target for culprits. Keeps Envoy's messages `words` if the search does not
    /// finish.
    pub async fn search(
        &mut self,
        target: Configuration<'_>,
        newer: &(impl Fn() -> bool + Send + Sync),
        words: &[String],
    ) -> Advice {
        let before: BTreeSet<Piece> = self.culprits.keys().cloned().collect();
        let start = Instant::now();
        let accepted = self.accepted.as_deref().map(EncodedSnapshot::snapshot);
        let judge = self.judge(target);
        let mut search = self.start_search(&judge, newer);
        let end = search
            .run(&target.encoded.snapshot(), accepted.as_ref())
            .await;
        let runs = search.runs;
        for (piece, culprit) in self.culprits.iter().filter(|(p, _)| !before.contains(p)) {
            let instead = match culprit.put_back {
                Some(_) => "the previously accepted key is restored",
                None => "it is excluded",
            };
            let _object = tracing::error_span!("culprit", object = %piece).entered();
            tracing::error!(words = culprit.envoy_words, "Envoy rejects this; {instead}");
        }
        tracing::info!(runs, took = ?start.elapsed(), "finished the search for rejected parts");
        let learned = self.culprits.len() > before.len();
        self.unfinished = None;
        match end {
            Ok(SearchEnd::Clean) => advice(learned),
            Ok(SearchEnd::Unfinished) => {
                self.unfinished = Some(words.to_vec());
                Advice::Resume
            }
            Ok(SearchEnd::Unexplained { envoy_words }) => {
                tracing::error!(
                    words = envoy_words,
                    "cannot determine which parts Envoy rejects"
                );
                advice(learned)
            }
            Err(error) => {
                no_verdict(&error);
                advice(learned)
            }
        }
    }

    /// Validates keys that the running Envoy could not verify. Returns true if any is rejected.
    pub async fn judge_keys(
        &mut self,
        target: Configuration<'_>,
        names: &[String],
        newer: &(impl Fn() -> bool + Send + Sync),
    ) -> bool {
        let before = self.culprits.len();
        let judge = self.judge(target);
        let mut search = self.start_search(&judge, newer);
        if let Err(error) = search.keys(&target.encoded.snapshot(), names).await {
            no_verdict(&error);
        }
        self.culprits.len() > before
    }

    fn judge(&self, target: Configuration<'_>) -> EnvoyJudge {
        EnvoyJudge {
            binary: self.binary.clone(),
            scratch: self.scratch.clone(),
            encoded: Arc::clone(target.encoded),
            accepted_keys: accepted_keys(target.encoded, self.last_good_keys.as_deref()),
            options: target.options.clone(),
            instances: self.instances.clone(),
        }
    }

    fn start_search<'s, N>(
        &'s mut self,
        judge: &'s EnvoyJudge,
        newer: N,
    ) -> Search<'s, EnvoyJudge, N> {
        Search {
            judge,
            limits: self.limits,
            stop: newer,
            now: Timestamp::now(),
            accepted_keys: &judge.accepted_keys,
            culprits: &mut self.culprits,
            good: &mut self.good,
            runs: 0,
            learned: false,
        }
    }
}

fn accepted_keys(target: &EncodedSnapshot, accepted: Option<&EncodedSnapshot>) -> AcceptedKeys {
    accepted.map_or_else(AcceptedKeys::default, |accepted| {
        AcceptedKeys::new(target, accepted)
    })
}

fn advice(learned: bool) -> Advice {
    if learned { Advice::Retry } else { Advice::Keep }
}

fn no_verdict(error: &NoVerdict) {
    tracing::error!(%error, "cannot validate parts with Envoy");
}
