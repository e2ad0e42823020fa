//! The listeners of a Gateway or ListenerSet to which a route refers.

use crate::listeners::{CheckedListener, ListenerOwner};
use sesame_kinds::status::Verdict;

pub(crate) struct ParentListeners<'g, 'w> {
    pub(crate) owner: &'g ListenerOwner<'w>,
    /// Set if the whole parent is rejected.
    pub(crate) refused: &'g Verdict,
    pub(super) start: usize,
    pub(super) listeners: &'g [CheckedListener<'w>],
}

impl<'g, 'w> ParentListeners<'g, 'w> {
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (usize, &'g CheckedListener<'w>)> {
        (self.start..).zip(self.listeners)
    }
}
