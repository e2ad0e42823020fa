//! What is held of one Gateway, and what is going on to complete it. Only values.

use super::pause::Pauses;
use super::shelf::Shelf;

/// A shelf, and what is going on for it.
pub(super) struct Entry {
    pub(super) shelf: Shelf,
    pub(super) pauses: Pauses,
    /// Counts manifests. What was begun for an earlier one is of no use for this one.
    pub(super) round: u64,
    /// Whether a fetch or a pause of this round is going on.
    pub(super) busy: bool,
    /// Whether its manifest is looked for by name.
    pub(super) doubted: bool,
}

impl Entry {
    /// Nothing is going on yet.
    pub(super) fn of(shelf: Shelf) -> Self {
        Self {
            shelf,
            pauses: Pauses::default(),
            round: 0,
            busy: false,
            doubted: false,
        }
    }
}
