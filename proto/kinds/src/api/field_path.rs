//! The path of a field in an object, such as `spec.rules[2].backendRefs[0].weight`.

use std::fmt;

/// One step of a path: into a field, map entry or list element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStep {
    /// The name of a field, or the key of a map entry.
    Field(Box<str>),
    /// The index of a list element, counted from 0.
    Index(usize),
}

/// The path from an object to one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Box<[PathStep]>);

/// Maximum printed length of a key in characters, because keys are untrusted input. Longer keys are
/// truncated.
const MAX_KEY_CHARACTERS: usize = 64;

impl FieldPath {
    /// Returns the names and keys on the path, without list indices.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            PathStep::Field(name) => Some(name.as_ref()),
            PathStep::Index(_) => None,
        })
    }

    /// Returns the index of the `spec.<list>` element on the path, or `None` if the path does not
    /// lead into that list.
    pub fn element_of(&self, list: &str) -> Option<usize> {
        match self.0.as_ref() {
            [
                PathStep::Field(spec),
                PathStep::Field(name),
                PathStep::Index(index),
                ..,
            ] if spec.as_ref() == "spec" && name.as_ref() == list => Some(*index),
            _ => None,
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) => {
                    if i > 0 {
                        f.write_str(".")?;
                    }
                    let mut letters = name.chars();
                    for letter in letters.by_ref().take(MAX_KEY_CHARACTERS) {
                        write!(f, "{}", letter.escape_debug())?;
                    }
                    if letters.next().is_some() {
                        f.write_str("…")?;
                    }
                }
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
