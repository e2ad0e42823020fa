//! The listeners of one parent of routes, with their indices in the Gateway.

use crate::resolve::listeners::{CheckedListener, ListenerOwner};
use crate::status::Verdict;

/// The listeners of one parent of routes: of a Gateway itself or of one of its ListenerSets.
pub(crate) struct ParentListeners<'g, 'w> {
    pub(crate) owner: &'g ListenerOwner<'w>,
    /// The reason why the parent has no listeners on the Gateway, if so.
    pub(crate) refused: &'g Verdict,
    /// Index of the first one among all listeners of the Gateway.
    pub(super) start: usize,
    pub(super) listeners: &'g [CheckedListener<'w>],
}

impl<'g, 'w> ParentListeners<'g, 'w> {
    /// Returns the listeners with their indices among all listeners of the Gateway.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (usize, &'g CheckedListener<'w>)> {
        (self.start..).zip(self.listeners)
    }
}
