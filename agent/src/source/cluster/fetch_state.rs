//! What is held of one Gateway, and what is going on to complete it. Only values.

use super::assembler::RevisionAssembler;
use super::backoff::Backoff;

/// A assembler, and what is going on for it.
pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Counts manifests. What was begun for an earlier one is of no use for this one.
    pub(super) round: u64,
    /// Whether a fetch or a pause of this round is going on.
    pub(super) busy: bool,
    /// Whether its manifest is looked for by name.
    pub(super) doubted: bool,
}

impl FetchState {
    /// Nothing is going on yet.
    pub(super) fn of(assembler: RevisionAssembler) -> Self {
        Self {
            assembler,
            backoff: Backoff::default(),
            round: 0,
            busy: false,
            doubted: false,
        }
    }
}
