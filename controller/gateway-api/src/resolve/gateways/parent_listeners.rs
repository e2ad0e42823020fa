//! The listeners of a route's parent, with their indices in the Gateway.

use crate::resolve::listeners::{CheckedListener, ListenerOwner};
use crate::status::Verdict;

/// The parent is either a Gateway or one of its ListenerSets.
pub(crate) struct ParentListeners<'g, 'w> {
    pub(crate) owner: &'g ListenerOwner<'w>,
    /// The reason for rejecting the whole parent, if any.
    pub(crate) refused: &'g Verdict,
    pub(super) start: usize,
    pub(super) listeners: &'g [CheckedListener<'w>],
}

impl<'g, 'w> ParentListeners<'g, 'w> {
    /// Returns indices in the Gateway's list of listeners.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (usize, &'g CheckedListener<'w>)> {
        (self.start..).zip(self.listeners)
    }
}
