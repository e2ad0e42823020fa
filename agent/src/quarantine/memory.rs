//! Culprits, remembered by the digest of the piece: one that has not changed is not tried again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_proto::schema::{KeyRef, Snapshot};

use super::piece::{Digest, Piece, Pieces};

/// What Envoy refuses of one snapshot.
pub type Culprits = BTreeMap<Piece, Culprit>;

/// Why a piece is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Of the refused version.
    pub digest: Digest,
    /// Envoy's reason.
    pub envoy_words: String,
    /// When it was found.
    pub since: Timestamp,
    /// For a route: whether even its match is refused, so that it cannot answer 500 in its place.
    pub dropped: bool,
    /// For a key: the version that was accepted before and is served in its place.
    pub put_back: Option<KeyRef>,
}

/// Those of `known` that `snapshot` still has, in the refused version.
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
