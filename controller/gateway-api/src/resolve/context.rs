//! What every step of one resolution may look at, and where it leaves what it noticed.

use std::borrow::Cow;

use super::grants::Grants;
use super::{Options, Problem};
use crate::api::Metadata;
use crate::resolve::tables::displaced::Displaced;
use crate::world::{Kind, ObjectKey, World};

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
        let mut problems = Problems::default();
        for grant in &world.reference_grants {
            problems.add_unknown(Kind::ReferenceGrant, &grant.metadata);
        }
        Self {
            world,
            options,
            grants: Grants::new(world),
            problems,
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

    /// Tells what is unknown of an object that has no status.
    fn add_unknown(&mut self, kind: Kind, metadata: &Metadata) {
        let message = match metadata.unknown.refusal("") {
            Some(why) => Cow::Owned(format!("grants nothing: {why}")),
            None => metadata.unknown.beside("", "", None),
        };
        if !message.is_empty() {
            let name = metadata.key();
            let message = message.trim_start_matches("; ").to_owned();
            self.add(ObjectKey { kind, name }, message);
        }
    }

    /// Sorted, each once.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}
