//! Location of a value in a tree. Locations live on the stack; paths are only allocated on demand.

use crate::api::{FieldPath, PathStep};

/// Steps from a node up to the root, as a linked list.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'p> {
    pub(super) parent: Option<&'p At<'p>>,
    pub(super) step: Down<'p>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Down<'p> {
    Root,
    Field(&'p str),
    /// An entry in a map with arbitrary keys.
    Key(&'p str),
    Index(usize),
}

impl At<'_> {
    pub(super) const ROOT: At<'static> = At {
        parent: None,
        step: Down::Root,
    };

    /// Also returns the number of steps before the first map key. Later steps may reveal the
    /// object's contents.
    pub(super) fn path(&self) -> (FieldPath, usize) {
        let mut steps = Vec::new();
        let mut named = 0;
        let mut at = Some(self);
        while let Some(At { parent, step }) = at {
            named = match step {
                Down::Root => named,
                Down::Key(_) => 0,
                Down::Field(_) | Down::Index(_) => named + 1,
            };
            match step {
                Down::Root => {}
                Down::Field(name) | Down::Key(name) => steps.push(PathStep::Field((*name).into())),
                Down::Index(index) => steps.push(PathStep::Index(*index)),
            }
            at = *parent;
        }
        steps.reverse();
        (FieldPath(steps.into()), named)
    }

    pub(super) fn is_metadata(&self) -> bool {
        match (self.parent, self.step) {
            (Some(At { parent: None, .. }), Down::Field(name)) => name == "metadata",
            (Some(parent), _) => parent.is_metadata(),
            (None, _) => false,
        }
    }

    /// Returns the innermost field that contains the value.
    pub(super) fn field(&self) -> &str {
        match (self.step, self.parent) {
            (Down::Field(name) | Down::Key(name), _) => name,
            (Down::Index(_), Some(parent)) => parent.field(),
            (Down::Index(_) | Down::Root, _) => "",
        }
    }
}
