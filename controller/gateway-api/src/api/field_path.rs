//! The path of a field in an object, such as `spec.rules[2].backendRefs[0].weight`.

use std::fmt;

/// One step down into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStep {
    /// A step to a field, or to the entry of a map.
    Field(Box<str>),
    /// A step to an element of a list, from 0.
    Index(usize),
}

/// The steps from the object to one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Box<[PathStep]>);

/// Longest part of a key to print: keys are untrusted input.
const MOST_OF_A_KEY: usize = 64;

impl FieldPath {
    /// Returns the names of the fields on the path, without places in lists.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            PathStep::Field(name) => Some(name.as_ref()),
            PathStep::Index(_) => None,
        })
    }

    /// Returns the place in the list `spec.<list>` that the path leads through, if it does.
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
                    for letter in letters.by_ref().take(MOST_OF_A_KEY) {
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
