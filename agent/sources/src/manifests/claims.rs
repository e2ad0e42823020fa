//! If several files declare an object, uses the first file by path and reports the others.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::Manifests;
use super::objects::KeyedObject;
use crate::problem::{Severity, SourceProblem};

impl Manifests {
    pub(super) fn claim(
        &mut self,
        path: &Arc<Path>,
        objects: Vec<KeyedObject>,
        changed: &mut BTreeSet<KeyedObject>,
    ) {
        for object in objects {
            let holds = self.held(path, &object).is_some();
            let mut claims = self.contested.remove(&object).unwrap_or_else(|| {
                let owner = self.owners.get(&object);
                owner.cloned().into_iter().collect()
            });
            match (claims.binary_search(path), holds) {
                (Err(at), true) => claims.insert(at, path.clone()),
                (Ok(at), false) => {
                    claims.remove(at);
                }
                _ => {}
            }
            // Remove the old key, which would keep an unused object in memory.
            self.owners.remove(&object);
            let winner = claims
                .first()
                .and_then(|path| Some((path.clone(), self.held(path, &object)?.clone())));
            let Some((owner, winner)) = winner else {
                if self.world.remove(&object.key()) {
                    changed.insert(object);
                }
                continue;
            };
            self.owners.insert(winner.clone(), owner);
            if claims.len() > 1 {
                self.contested.insert(winner.clone(), claims);
            }
            // A change to a comment does not change the object.
            if self.world.get(&winner.key()).as_ref() != Some(&winner.0) {
                self.world.insert(winner.0.clone());
                changed.insert(winner);
            }
        }
    }

    fn held(&self, path: &Path, object: &KeyedObject) -> Option<&KeyedObject> {
        let (held, _) = self.files.get(path)?.objects.get(object)?;
        Some(held)
    }

    pub(super) fn problems(&self) -> Vec<SourceProblem> {
        let mut problems = self.tree_problems.clone();
        for file in self.files.values() {
            problems.extend(file.problems.iter().cloned());
        }
        for (object, claims) in &self.contested {
            let Some((first, others)) = claims.split_first() else {
                continue;
            };
            let line = |path| Some(self.files.get(path)?.objects.get(object)?.1);
            for other in others {
                problems.push(SourceProblem {
                    file: other.to_string_lossy().into_owned(),
                    line: line(other).unwrap_or(0),
                    object: Some(object.key().to_string()),
                    severity: Severity::Error,
                    message: format!(
                        "is already declared in {}:{}, which takes precedence; remove one",
                        first.display(),
                        line(first).unwrap_or(1)
                    ),
                    hidden_by: None,
                });
            }
        }
        problems.sort();
        problems
    }
}
