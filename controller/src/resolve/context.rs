//! What every step of one resolution may look at, and where it leaves what it noticed.

use super::displaced::Displaced;
use super::grants::Grants;
use super::{Options, Problem};
use crate::world::{ObjectKey, World};

/// The objects, what was asked, and what was noticed.
pub(super) struct Context<'w, 'o> {
    pub(super) world: &'w World,
    pub(super) options: &'o Options,
    pub(super) grants: Grants<'w>,
    pub(super) problems: Problems,
    pub(super) displaced: Displaced,
}

impl<'w, 'o> Context<'w, 'o> {
    pub(super) fn new(world: &'w World, options: &'o Options) -> Self {
        Self {
            world,
            options,
            grants: Grants::new(world),
            problems: Problems::default(),
            displaced: Displaced::default(),
        }
    }
}

/// Things worth telling for which the API has no condition.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, object: ObjectKey, message: String) {
        self.0.push(Problem { object, message });
    }

    /// Sorted, each once.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}
