//! Determines whether an event affects one file, the whole tree, or nothing.

use std::path::{Component, Path};

use notify::EventKind;
use notify::event::{ModifyKind, RenameMode};

use super::WatchThread;
use crate::manifests::tree;

pub(super) enum ChangeScope {
    Nothing,
    File,
    Tree,
}

impl WatchThread {
    pub(super) fn scope(&self, path: &Path, kind: EventKind) -> ChangeScope {
        // The path is the root or a link above it. Changes inside the root have their own events.
        let replaced = || match kind {
            EventKind::Access(_) | EventKind::Modify(ModifyKind::Data(_)) => ChangeScope::Nothing,
            _ => ChangeScope::Tree,
        };
        if self.way.values().any(|(_, names)| names.contains(path)) {
            return replaced();
        }
        let Ok(relative) = path.strip_prefix(&self.root) else {
            return ChangeScope::Nothing;
        };
        let Some(Component::Normal(name)) = relative.components().next_back() else {
            return replaced();
        };
        if name == "..data" {
            return ChangeScope::Tree;
        }
        if tree::is_hidden(name) {
            return ChangeScope::Nothing;
        }
        let moved = matches!(
            kind,
            EventKind::Create(_)
                | EventKind::Remove(_)
                | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_))
        );
        let leaves = matches!(
            kind,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
        );
        if moved {
            let dir = self.watched.contains_key(relative)
                || !leaves && matches!(tree::inspect(path), tree::Found::Dir(_));
            if dir {
                return ChangeScope::Tree;
            }
        }
        if (self.is_ours)(name) {
            ChangeScope::File
        } else {
            ChangeScope::Nothing
        }
    }
}
