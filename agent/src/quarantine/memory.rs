//! Remembers culprits by the digest of the piece, so that an unchanged piece is not tried again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// Rejected pieces of one snapshot.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// Why a piece is excluded, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Digest of the rejected version.
    pub digest: Digest,
    /// Envoy's message.
    pub envoy_words: String,
    /// When the culprit was found.
    pub since: Timestamp,
    /// Whether Envoy accepts the match of a route, or the domain of a virtual host, together with
    /// everything else.
    pub match_verdict: MatchVerdict,
    /// Previously accepted version of a key, served instead of the rejected one.
    pub put_back: Option<KeyRef>,
}

impl Culprit {
    /// Returns true if the culprit cannot answer 500, so that nothing of it is left.
    pub fn is_dropped(&self) -> bool {
        self.match_verdict != MatchVerdict::Accepted
    }
}

/// Verdict on the match of a route, or on the domain of a virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchVerdict {
    /// The search was interrupted before.
    Unjudged,
    /// It can answer 500.
    Accepted,
    /// It is invalid, or conflicts with another piece.
    Rejected,
}

/// Returns the entries of `known` whose rejected version is still in `snapshot`.
pub(super) fn still_there(known: &Culprits, snapshot: &Snapshot) -> Culprits {
    if known.is_empty() {
        return Culprits::new();
    }
    let pieces = Pieces::new(snapshot);
    known
        .iter()
        .filter(|(piece, culprit)| {
            pieces
                .of
                .get(*piece)
                .is_some_and(|content| content.digest() == culprit.digest)
        })
        .map(|(piece, culprit)| (piece.clone(), culprit.clone()))
        .collect()
}
