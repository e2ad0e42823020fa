//! Memory of culprits by the digest of the piece: one that has not changed is not tried again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// Pieces of one snapshot that Envoy refuses.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// Reason why a piece is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Digest of the refused version.
    pub digest: Digest,
    /// Envoy's message.
    pub envoy_words: String,
    /// Time at which it was found.
    pub since: Timestamp,
    /// True for a route of which even the match is refused, or a virtual host of which even the domain is, so that it cannot
    /// answer 500.
    pub dropped: bool,
    /// Version of a key that was accepted before and is served in its place.
    pub put_back: Option<KeyRef>,
}

/// Returns the entries of `known` that `snapshot` still has in the rejected version.
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
