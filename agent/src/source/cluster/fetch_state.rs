//! The assembler of one Gateway, and the state of the requests that complete it. Values only.

use super::assembler::RevisionAssembler;
use super::backoff::Backoff;

/// An assembler, and the state of its requests.
pub(super) struct FetchState {
    pub(super) assembler: RevisionAssembler,
    pub(super) backoff: Backoff,
    /// Counts manifests. A request for an earlier one is of no use for this one.
    pub(super) round: u64,
    /// True while a fetch or a pause of this round is in progress.
    pub(super) busy: bool,
    /// True while its manifest is being looked for by name.
    pub(super) doubted: bool,
}

impl FetchState {
    /// Starts without requests.
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
