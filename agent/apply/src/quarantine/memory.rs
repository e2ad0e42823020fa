//! Remembers culprits by digest, because a rejected version must not be tried again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// Rejected pieces of a snapshot.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// Rejected version of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Digest of the rejected version.
    pub digest: Digest,
    /// Envoy's message.
    pub envoy_words: String,
    /// When the culprit was found.
    pub since: Timestamp,
    /// For routes and virtual hosts: whether the match or domain is valid in combination with all
    /// other pieces.
    pub match_verdict: MatchVerdict,
    /// Accepted version of a key, served instead of the rejected one.
    pub put_back: Option<KeyRef>,
}

impl Culprit {
    /// Returns true if not even the match or domain is accepted.
    pub fn is_dropped(&self) -> bool {
        self.match_verdict != MatchVerdict::Accepted
    }
}

/// Whether Envoy accepts a route's match, or a virtual host's domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchVerdict {
    /// Unknown, because the search was interrupted.
    Unjudged,
    /// Valid: the route or virtual host can be kept and return 500.
    Accepted,
    /// Invalid, or in conflict with another piece.
    Rejected,
}

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
