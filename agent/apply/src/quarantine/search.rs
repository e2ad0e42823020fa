//! Searches for culprits: bisects for pieces that Envoy rejects individually, then for conflicts.
//!
//! The number of Envoy runs is roughly the number of culprits times the logarithm of the number of
//! suspects. An interrupted search keeps its findings for the next one.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_proto::schema::Snapshot;

use super::accepted_keys::AcceptedKeys;
use super::exclude::exclude;
use super::isolate::{Depth, isolate};
use super::judge::{Judge, NoVerdict, ValidationScope};
use super::memory::{Culprit, Culprits, MatchVerdict};
use super::piece::{Digest, Level, Piece, PieceContent, Pieces};

/// Maximum number of remembered digests. Even a large snapshot has far fewer pieces.
const MAX_GOOD: usize = 200_000;

/// Limits on one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Maximum number of Envoy runs.
    pub runs: usize,
    /// Maximum duration, checked before each run.
    pub time: Duration,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self {
            runs: 1_000,
            time: Duration::from_secs(120),
        }
    }
}

/// How a search ended.
#[derive(Debug)]
pub enum SearchEnd {
    /// Envoy accepts the configuration without the culprits.
    Clean,
    /// Envoy rejects the configuration even without any piece.
    Unexplained {
        /// Envoy's message.
        envoy_words: String,
    },
    /// Out of time or runs, or a newer target arrived. A later search must continue.
    Unfinished,
}

/// A search for culprits, and its findings.
pub struct Search<'s, J, N> {
    /// Judges the configurations that this search builds.
    pub judge: &'s J,
    /// Limits on this search.
    pub limits: SearchLimits,
    /// Returns true to stop early. Ignored until this search has found something new, because
    /// searches must make progress even if targets change frequently.
    pub stop: N,
    /// Detection time of new culprits.
    pub now: Timestamp,
    /// Accepted versions of keys.
    pub accepted_keys: &'s AcceptedKeys,
    /// All culprits, including earlier ones.
    pub culprits: &'s mut Culprits,
    /// Digests of individually valid pieces, including earlier ones.
    pub good: &'s mut HashSet<Digest>,
    /// Number of Envoy runs.
    pub runs: usize,
    /// True if this search found a new culprit or valid piece.
    pub learned: bool,
}

enum Halt {
    Unfinished,
    NoVerdict(NoVerdict),
}

impl<J: Judge, N: Fn() -> bool> Search<'_, J, N> {
    /// Searches `wanted` for culprits. If two pieces conflict, the one missing from `accepted`, the
    /// served configuration, is the culprit.
    pub async fn run(
        &mut self,
        wanted: &Snapshot,
        accepted: Option<&Snapshot>,
    ) -> Result<SearchEnd, NoVerdict> {
        let start = Instant::now();
        let end = self.search(wanted, accepted, start).await;
        self.record_digests(&Pieces::new(wanted));
        match end {
            Ok(end) => Ok(end),
            Err(Halt::Unfinished) => Ok(SearchEnd::Unfinished),
            Err(Halt::NoVerdict(error)) => Err(error),
        }
    }

    pub(super) async fn keys(
        &mut self,
        wanted: &Snapshot,
        names: &[String],
    ) -> Result<(), NoVerdict> {
        let pieces = Pieces::new(wanted);
        let suspects = names
            .iter()
            .map(|name| Piece::Key(name.clone()))
            .filter(|piece| {
                let content = pieces.of.get(piece);
                content.is_some_and(|content| !self.good.contains(&content.digest()))
                    && !self.culprits.contains_key(piece)
            })
            .collect();
        let end = self
            .bad_ones(&pieces, suspects, Depth::All, Instant::now())
            .await;
        self.record_digests(&pieces);
        match end {
            Ok(()) | Err(Halt::Unfinished) => Ok(()),
            Err(Halt::NoVerdict(error)) => Err(error),
        }
    }

    fn record_digests(&mut self, pieces: &Pieces<'_>) {
        for (piece, culprit) in &mut *self.culprits {
            if let Some(content) = pieces.of.get(piece) {
                culprit.digest = content.digest();
            }
        }
    }

    async fn search(
        &mut self,
        wanted: &Snapshot,
        accepted: Option<&Snapshot>,
        start: Instant,
    ) -> Result<SearchEnd, Halt> {
        let known: HashSet<Digest> = accepted.map(digests).unwrap_or_default();
        if self.good.len() > MAX_GOOD {
            self.good.clear();
        }
        self.good.extend(&known);
        for level in Level::ALL {
            // Exclude known culprits, or pieces that refer to them would be blamed.
            let reduced = exclude(wanted, self.culprits);
            let pieces = Pieces::new(&reduced);
            let suspects = pieces
                .of
                .iter()
                .filter(|(piece, content)| {
                    Level::of(piece) == level
                        && !self.culprits.contains_key(*piece)
                        && !self.good.contains(&content.digest())
                })
                .map(|(piece, _)| piece.clone())
                .collect();
            self.bad_ones(&pieces, suspects, Depth::All, start).await?;
        }
        self.judge_matches(&Pieces::new(wanted), start).await?;
        self.search_whole(wanted, &known, start).await
    }

    async fn bad_ones(
        &mut self,
        pieces: &Pieces<'_>,
        group: Vec<Piece>,
        depth: Depth,
        start: Instant,
    ) -> Result<(), Halt> {
        let mut groups = vec![SuspectGroup {
            pieces: group,
            refused: false,
            first_half: false,
        }];
        while let Some(group) = groups.pop() {
            let single = match group.pieces.as_slice() {
                [] => continue,
                [piece] => Some(piece.clone()),
                _ => None,
            };
            // Judge a single piece even if it must be at fault, because the report needs Envoy's
            // message.
            if !group.refused || single.is_some() {
                let snapshot = isolate(pieces, &group.pieces, depth);
                let Some(words) = self.ask(snapshot, ValidationScope::Alone, start).await? else {
                    self.absolve(pieces, &group.pieces, depth);
                    if let (true, Some(second_half)) = (group.first_half, groups.last_mut()) {
                        second_half.refused = true;
                    }
                    continue;
                };
                if let Some(piece) = single {
                    let match_verdict = match depth {
                        Depth::All => MatchVerdict::Unjudged,
                        Depth::MatchOnly => MatchVerdict::Rejected,
                    };
                    self.blame(&piece, words, match_verdict);
                    continue;
                }
            }
            let mut first = group.pieces;
            let second = first.split_off(first.len() / 2);
            for (pieces, first_half) in [(second, false), (first, true)] {
                groups.push(SuspectGroup {
                    pieces,
                    refused: false,
                    first_half,
                });
            }
        }
        Ok(())
    }

    async fn judge_matches(&mut self, pieces: &Pieces<'_>, start: Instant) -> Result<(), Halt> {
        let unjudged = (self.culprits.iter())
            .filter(|(piece, culprit)| {
                piece.can_answer() && culprit.match_verdict == MatchVerdict::Unjudged
            })
            .map(|(piece, _)| piece.clone())
            .collect();
        self.bad_ones(pieces, unjudged, Depth::MatchOnly, start)
            .await
    }

    /// Finds conflicts between pieces.
    async fn search_whole(
        &mut self,
        wanted: &Snapshot,
        known: &HashSet<Digest>,
        start: Instant,
    ) -> Result<SearchEnd, Halt> {
        let pieces = Pieces::new(wanted);
        let Some(mut messages) = self.ask_whole(wanted, &[], None, start).await? else {
            return Ok(SearchEnd::Clean);
        };
        // Pieces that Envoy already serves come first, because new pieces take the blame for
        // conflicts.
        let (old, new): (Vec<_>, Vec<_>) = pieces
            .of
            .iter()
            .filter(|(piece, _)| !self.culprits.contains_key(*piece))
            .partition(|(_, content)| known.contains(&content.digest()));
        let mut good = old.len();
        let mut order: Vec<Piece> = old
            .into_iter()
            .chain(new)
            .map(|(piece, _)| piece.clone())
            .collect();
        if !self.goes_up_to(good, wanted, &order, start).await? {
            good = 0;
            if !self.goes_up_to(good, wanted, &order, start).await? {
                return Ok(SearchEnd::Unexplained {
                    envoy_words: messages,
                });
            }
        }
        // Invariant: the first `good` pieces are valid in combination. Each iteration removes the
        // next piece that conflicts with them.
        while good < order.len() {
            let mut refused = order.len();
            while refused - good > 1 {
                let middle = good.midpoint(refused);
                let without = order.get(middle..).unwrap_or_default();
                match self.ask_whole(wanted, without, None, start).await? {
                    None => good = middle,
                    Some(newer) => (refused, messages) = (middle, newer),
                }
            }
            let piece = order.remove(good);
            // Do not leave this `Unjudged`: a later search would judge the match or domain
            // individually, and miss the conflict.
            let mut match_verdict = MatchVerdict::Rejected;
            if piece.can_answer() {
                let without = order.get(good..).unwrap_or_default();
                let refused = self.ask_whole(wanted, without, Some(&piece), start).await?;
                if refused.is_none() {
                    match_verdict = MatchVerdict::Accepted;
                }
            }
            self.blame(&piece, messages, match_verdict);
            match self.ask_whole(wanted, &[], None, start).await? {
                None => return Ok(SearchEnd::Clean),
                Some(newer) => messages = newer,
            }
        }
        Ok(SearchEnd::Unexplained {
            envoy_words: messages,
        })
    }

    async fn goes_up_to(
        &mut self,
        count: usize,
        wanted: &Snapshot,
        order: &[Piece],
        start: Instant,
    ) -> Result<bool, Halt> {
        let without = order.get(count..).unwrap_or_default();
        let refused = self.ask_whole(wanted, without, None, start).await?;
        Ok(refused.is_none())
    }

    /// Excludes the culprits and `without`. The piece `answering`, if any, responds with 500.
    async fn ask_whole(
        &mut self,
        wanted: &Snapshot,
        without: &[Piece],
        answering: Option<&Piece>,
        start: Instant,
    ) -> Result<Option<String>, Halt> {
        let mut excluded = self.culprits.clone();
        let without = without.iter().map(|piece| (piece, MatchVerdict::Rejected));
        let answering = answering.map(|piece| (piece, MatchVerdict::Accepted));
        for (piece, match_verdict) in without.chain(answering) {
            excluded.insert(
                piece.clone(),
                Culprit {
                    digest: Digest::default(),
                    envoy_words: String::new(),
                    since: self.now,
                    match_verdict,
                    put_back: None,
                },
            );
        }
        self.ask(exclude(wanted, &excluded), ValidationScope::Whole, start)
            .await
    }

    async fn ask(
        &mut self,
        snapshot: Snapshot,
        scope: ValidationScope,
        start: Instant,
    ) -> Result<Option<String>, Halt> {
        let used_up = self.runs >= self.limits.runs || start.elapsed() > self.limits.time;
        if used_up || (self.learned && (self.stop)()) {
            return Err(Halt::Unfinished);
        }
        self.runs += 1;
        let verdict = self.judge.judge(snapshot, scope).await;
        verdict.map_err(Halt::NoVerdict)
    }

    fn absolve(&mut self, pieces: &Pieces<'_>, group: &[Piece], depth: Depth) {
        for piece in group {
            match depth {
                Depth::All => {
                    if let Some(content) = pieces.of.get(piece) {
                        self.learned |= self.good.insert(content.digest());
                    }
                }
                Depth::MatchOnly => {
                    if let Some(culprit) = self.culprits.get_mut(piece) {
                        self.learned = true;
                        culprit.match_verdict = MatchVerdict::Accepted;
                    }
                }
            }
        }
    }

    fn blame(&mut self, piece: &Piece, envoy_words: String, match_verdict: MatchVerdict) {
        self.learned = true;
        let culprit = self.culprits.entry(piece.clone()).or_insert(Culprit {
            digest: Digest::default(),
            envoy_words,
            since: self.now,
            match_verdict,
            put_back: self.accepted_keys.before(piece),
        });
        culprit.match_verdict = match_verdict;
    }
}

struct SuspectGroup {
    pieces: Vec<Piece>,
    /// Envoy is known to reject this group.
    refused: bool,
    /// The next group on the stack is the second half of the same rejected group.
    first_half: bool,
}

fn digests(snapshot: &Snapshot) -> HashSet<Digest> {
    Pieces::new(snapshot)
        .of
        .values()
        .map(PieceContent::digest)
        .collect()
}
