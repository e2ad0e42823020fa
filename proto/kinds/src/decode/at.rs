//! Location of a value in a tree. Locations live on the stack; paths are only allocated on demand.

use crate::api::{FieldPath, PathStep};

/// Steps from a node up to the root, as a linked list.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'p> {
    pub(super) parent: Option<&'p At<'p>>,
    pub(super) step: Step<'p>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'p> {
    Root,
    Field(&'p str),
    /// An entry in a map with arbitrary keys.
    Key(&'p str),
    Index(usize),
}

impl At<'_> {
    pub(super) const ROOT: At<'static> = At {
        parent: None,
        step: Step::Root,
    };

    /// Also returns the number of steps before the first map key. Later steps may reveal the
    /// object's contents.
    pub(super) fn path(&self) -> (FieldPath, usize) {
        let mut steps = Vec::new();
        let mut named = 0;
        let mut at = Some(self);
        while let Some(At { parent, step }) = at {
            named = match step {
                Step::Root => named,
                Step::Key(_) => 0,
                Step::Field(_) | Step::Index(_) => named + 1,
            };
            match step {
                Step::Root => {}
                Step::Field(name) | Step::Key(name) => steps.push(PathStep::Field((*name).into())),
                Step::Index(index) => steps.push(PathStep::Index(*index)),
            }
            at = *parent;
        }
        steps.reverse();
        (FieldPath(steps.into()), named)
    }

    pub(super) fn is_metadata(&self) -> bool {
        match (self.parent, self.step) {
            (Some(At { parent: None, .. }), Step::Field(name)) => name == "metadata",
            (Some(parent), _) => parent.is_metadata(),
            (None, _) => false,
        }
    }

    /// Returns the innermost field that contains the value.
    pub(super) fn field(&self) -> &str {
        match (self.step, self.parent) {
            (Step::Field(name) | Step::Key(name), _) => name,
            (Step::Index(_), Some(parent)) => parent.field(),
            (Step::Index(_) | Step::Root, _) => "",
        }
    }
}
