//! The key that a Gateway shows to backends, noted beside the names of Backends in tables.
//!
//! Tables may hold routes of several Gateways, each with a key of its own. Which Backend shows a key is only known where Backends
//! are looked up, in `snapshot`; until then its name and the key stand together.

use sesame_proto::schema::{Forward, WeightedBackend};

/// Separator that no name has.
const SEPARATOR: char = '\n';

/// The name of the key that a Gateway shows to backends, if it shows any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownKey<'a>(pub(super) Option<&'a str>);

impl ShownKey<'_> {
    /// Notes the key in the names of the Backends of a route.
    pub(super) fn forward(self, mut forward: Forward) -> Forward {
        self.note_in(&mut forward.backends);
        for mirror in &mut forward.mirrors {
            self.note(&mut mirror.backend);
        }
        forward
    }

    /// Notes the key in the names of these Backends.
    pub(super) fn note_in(self, shares: &mut [WeightedBackend]) {
        for share in shares {
            self.note(&mut share.backend);
        }
    }

    fn note(self, name: &mut String) {
        if let Some(key) = self.0.filter(|_| !name.is_empty()) {
            name.push(SEPARATOR);
            name.push_str(key);
        }
    }
}

/// Returns the name of the Backend, and that of the key, if one is noted.
pub(crate) fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(SEPARATOR) {
        Some((name, key)) => (name, Some(key)),
        None => (name, None),
    }
}
