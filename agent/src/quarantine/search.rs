//! The search for culprits: by halves among pieces that are judged alone, then for the piece that does not go with
//! those before it.
//!
//! It takes as many runs of Envoy as there are culprits, times the logarithm of the number of suspects. It can be
//! interrupted after every run; what it has learned by then is kept, so that the next search goes on from there.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_proto::schema::Snapshot;

use super::alone::{Depth, alone};
use super::exclude::exclude;
use super::judge::{Judge, NoVerdict, Trial};
use super::memory::{Culprit, Culprits};
use super::piece::{Content, Digest, Piece, Pieces};

/// How much one search may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs of Envoy.
    pub runs: usize,
    /// Time, looked at before each run.
    pub time: Duration,
}

impl Default for Limits {
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
    /// Without the culprits that are known now, Envoy accepts the rest.
    Clean,
    /// Envoy refuses something that is no piece, or something that all pieces depend on.
    Unexplained {
        /// Why, as far as it says.
        envoy_words: String,
    },
    /// There was no more time, or something newer came; to be gone on with.
    Unfinished,
}

/// A search and what it has learned.
pub struct Search<'s, J, N> {
    /// Who judges.
    pub judge: &'s J,
    /// What it may cost.
    pub limits: Limits,
    /// Asked before every run: whether to end early.
    pub stop: N,
    /// The time that is noted for what is found.
    pub now: Timestamp,
    /// What was found, now and before.
    pub culprits: &'s mut Culprits,
    /// Digests of pieces that were found good alone, now and before.
    pub good: &'s mut HashSet<Digest>,
    /// Runs of Envoy so far.
    pub runs: usize,
}

/// Why a search ends early.
enum Halt {
    Unfinished,
    NoVerdict(NoVerdict),
}

impl<J: Judge, N: Fn() -> bool> Search<'_, J, N> {
    /// Searches `wanted`. `accepted` is what Envoy serves: of two pieces that do not go together, the new one is
    /// the culprit.
    pub async fn run(
        &mut self,
        wanted: &Snapshot,
        accepted: Option<&Snapshot>,
    ) -> Result<SearchEnd, NoVerdict> {
        let start = Instant::now();
        let end = self.search(wanted, accepted, start).await;
        self.note_digests(&Pieces::new(wanted));
        match end {
            Ok(end) => Ok(end),
            Err(Halt::Unfinished) => Ok(SearchEnd::Unfinished),
            Err(Halt::NoVerdict(error)) => Err(error),
        }
    }

    /// Looks at some keys only.
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
        self.note_digests(&pieces);
        match end {
            Ok(()) | Err(Halt::Unfinished) => Ok(()),
            Err(Halt::NoVerdict(error)) => Err(error),
        }
    }

    fn note_digests(&mut self, pieces: &Pieces<'_>) {
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
        self.good.extend(&known);
        for level in Level::ALL {
            // Without what is bad, nothing that refers to it is blamed.
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

    /// The pieces that Envoy refuses even alone.
    async fn bad_ones(
        &mut self,
        pieces: &Pieces<'_>,
        group: Vec<Piece>,
        depth: Depth,
        start: Instant,
    ) -> Result<(), Halt> {
        let mut groups = vec![Group {
            pieces: group,
            refused: false,
            first_half: false,
        }];
        // The next is the last.
        while let Some(group) = groups.pop() {
            let single = match group.pieces.as_slice() {
                [] => continue,
                [piece] => Some(piece.clone()),
                _ => None,
            };
            // Of one piece the words are wanted, even if it must be the one.
            if !group.refused || single.is_some() {
                let snapshot = alone(pieces, &group.pieces, depth);
                let Some(words) = self.ask(snapshot, Trial::Alone, start).await? else {
                    self.absolve(pieces, &group.pieces, depth);
                    if let (true, Some(second_half)) = (group.first_half, groups.last_mut()) {
                        second_half.refused = true;
                    }
                    continue;
                };
                if let Some(piece) = single {
                    self.blame(&piece, words);
                    continue;
                }
            }
            let mut first = group.pieces;
            let second = first.split_off(first.len() / 2);
            for (pieces, first_half) in [(second, false), (first, true)] {
                groups.push(Group {
                    pieces,
                    refused: false,
                    first_half,
                });
            }
        }
        Ok(())
    }

    /// Finds the culprit routes whose match is fine: they can answer 500.
    async fn judge_matches(&mut self, pieces: &Pieces<'_>, start: Instant) -> Result<(), Halt> {
        let dropped = self
            .culprits
            .iter()
            .filter(|(piece, culprit)| matches!(piece, Piece::Route(_)) && culprit.dropped)
            .map(|(piece, _)| piece.clone())
            .collect();
        self.bad_ones(pieces, dropped, Depth::MatchOnly, start)
            .await
    }

    /// Judges everything together, and finds what does not go with the rest.
    async fn search_whole(
        &mut self,
        wanted: &Snapshot,
        known: &HashSet<Digest>,
        start: Instant,
    ) -> Result<SearchEnd, Halt> {
        let pieces = Pieces::new(wanted);
        loop {
            let whole = exclude(wanted, self.culprits);
            let Some(words) = self.ask(whole, Trial::Whole, start).await? else {
                return Ok(SearchEnd::Clean);
            };
            // What is served goes first, so that what is new is blamed.
            let (old, new): (Vec<_>, Vec<_>) = pieces
                .of
                .iter()
                .filter(|(piece, _)| !self.culprits.contains_key(*piece))
                .partition(|(_, content)| known.contains(&content.digest()));
            let order: Vec<Piece> = old
                .into_iter()
                .chain(new)
                .map(|(piece, _)| piece.clone())
                .collect();
            let Some((piece, words)) = self.first_bad(wanted, &order, words.clone(), start).await?
            else {
                return Ok(SearchEnd::Unexplained { envoy_words: words });
            };
            self.blame(&piece, words);
            self.judge_matches(&pieces, start).await?;
        }
    }

    /// The first piece that Envoy refuses together with all before it. All of `order` are refused, with `words`.
    async fn first_bad(
        &mut self,
        wanted: &Snapshot,
        order: &[Piece],
        words: String,
        start: Instant,
    ) -> Result<Option<(Piece, String)>, Halt> {
        let (mut valid, mut refused) = (0, (order.len(), words));
        if self.ask_without(wanted, order, start).await?.is_some() {
            return Ok(None);
        }
        while refused.0 - valid > 1 {
            let middle = valid.midpoint(refused.0);
            let without = order.get(middle..).unwrap_or_default();
            match self.ask_without(wanted, without, start).await? {
                None => valid = middle,
                Some(words) => refused = (middle, words),
            }
        }
        Ok(order.get(valid).map(|piece| (piece.clone(), refused.1)))
    }

    async fn ask_without(
        &mut self,
        wanted: &Snapshot,
        without: &[Piece],
        start: Instant,
    ) -> Result<Option<String>, Halt> {
        let mut excluded = self.culprits.clone();
        for piece in without {
            excluded.insert(
                piece.clone(),
                Culprit {
                    digest: Digest::default(),
                    envoy_words: String::new(),
                    since: self.now,
                    dropped: true,
                },
            );
        }
        self.ask(exclude(wanted, &excluded), Trial::Whole, start)
            .await
    }

    async fn ask(
        &mut self,
        snapshot: Snapshot,
        trial: Trial,
        start: Instant,
    ) -> Result<Option<String>, Halt> {
        if self.runs >= self.limits.runs || start.elapsed() > self.limits.time || (self.stop)() {
            return Err(Halt::Unfinished);
        }
        self.runs += 1;
        let verdict = self.judge.judge(snapshot, trial).await;
        verdict.map_err(Halt::NoVerdict)
    }

    fn absolve(&mut self, pieces: &Pieces<'_>, group: &[Piece], depth: Depth) {
        for piece in group {
            match depth {
                Depth::All => self.good.extend(pieces.of.get(piece).map(Content::digest)),
                Depth::MatchOnly => {
                    if let Some(culprit) = self.culprits.get_mut(piece) {
                        culprit.dropped = false;
                    }
                }
            }
        }
    }

    fn blame(&mut self, piece: &Piece, envoy_words: String) {
        self.culprits.entry(piece.clone()).or_insert(Culprit {
            // Set at the end of the search, from what is wanted rather than from what is left of it.
            digest: Digest::default(),
            envoy_words,
            since: self.now,
            // Until its match is found to be fine.
            dropped: true,
        });
    }
}

/// Suspects.
struct Group {
    pieces: Vec<Piece>,
    /// Whether they are known to be refused together.
    refused: bool,
    /// Whether the group after it is the other half of a refused one.
    first_half: bool,
}

/// What is referred to is judged before what refers to it, which is then judged without what is bad.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Secrets,
    Backends,
    Rest,
}

impl Level {
    const ALL: [Self; 3] = [Self::Secrets, Self::Backends, Self::Rest];

    fn of(piece: &Piece) -> Self {
        match piece {
            Piece::Key(_) | Piece::TrustBundle(_) => Self::Secrets,
            Piece::Endpoints(_) | Piece::Backend(_) => Self::Backends,
            Piece::VirtualHost { .. }
            | Piece::Route(_)
            | Piece::L4Route(_)
            | Piece::Listener(_) => Self::Rest,
        }
    }
}

fn digests(snapshot: &Snapshot) -> HashSet<Digest> {
    Pieces::new(snapshot)
        .of
        .values()
        .map(Content::digest)
        .collect()
}
