//! Statuses as values: conditions without times, in the order and with the words of the specification.

use std::collections::BTreeMap;

use crate::world::ObjectKey;

/// The statuses of all objects that are ours to judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statuses {
    /// Placeholder until resolution fills it.
    pub objects: BTreeMap<ObjectKey, ()>,
}
