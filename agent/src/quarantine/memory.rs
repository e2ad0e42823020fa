//! Remembers culprits by the digest of their content, so that a rejected version is not tried
//! again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// All rejected pieces of a snapshot.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// The rejected version of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Digest of the rejected version.
    pub digest: Digest,
    /// Envoy's message.
    pub envoy_words: String,
    /// When the culprit was found.
    pub since: Timestamp,
    /// Whether the route's match, or the virtual host's domain, is accepted in combination with all
    /// other pieces. Irrelevant for all other kinds of pieces.
    pub match_verdict: MatchVerdict,
    /// Previously accepted version of a key, which is served instead of the rejected one.
    pub put_back: Option<KeyRef>,
}

impl Culprit {
    /// Returns true if a route or virtual host must be removed entirely, because not even its match
    /// or domain is accepted.
    pub fn is_dropped(&self) -> bool {
        self.match_verdict != MatchVerdict::Accepted
    }
}

/// Whether Envoy accepts a route's match, or a virtual host's domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchVerdict {
    /// Unknown, because the search was interrupted.
    Unjudged,
    /// The match or domain is valid, so the route or virtual host can be kept and made to return
    /// 500.
    Accepted,
    /// The match or domain is invalid, or conflicts with another piece.
    Rejected,
}

/// Returns the culprits in `known` that `snapshot` still contains in the rejected version.
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
