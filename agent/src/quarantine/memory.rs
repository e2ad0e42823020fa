//! Remembers culprits by the digest of their content, so that an unchanged piece is not tried
//! again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// Rejected pieces in one snapshot.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// A rejected version of a piece, with the reason and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Digest of the rejected version.
    pub digest: Digest,
    /// Envoy's message.
    pub envoy_words: String,
    /// When the culprit was found.
    pub since: Timestamp,
    /// Verdict on the route's match or the virtual host's domain, in combination with all other
    /// pieces.
    pub match_verdict: MatchVerdict,
    /// Previously accepted version of the key, served instead of the rejected one.
    pub put_back: Option<KeyRef>,
}

impl Culprit {
    /// Returns true if the culprit must be removed entirely, because it cannot even return 500.
    pub fn is_dropped(&self) -> bool {
        self.match_verdict != MatchVerdict::Accepted
    }
}

/// Verdict on a route's match, or on a virtual host's domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchVerdict {
    /// Not judged yet, because the search was interrupted.
    Unjudged,
    /// The route or virtual host can return 500.
    Accepted,
    /// The match or domain is invalid, or conflicts with another piece.
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
