//! One manifest: its documents, and the objects that stay in use when some of them break.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use sesame_gateway_api::api::UnknownField;
use sesame_gateway_api::decode::{self, DecodeError, Decoded, decode, split};
use sesame_gateway_api::world::ObjectKey;
use sha2::{Digest as _, Sha256};

use super::objects::{Held, Named, Objects, Reading};
use super::tree::Stamp;
use crate::source::problem::{Problem, Severity};

/// Part of a SHA-256 that is long enough to tell texts apart.
pub(super) type TextDigest = [u8; 16];

pub(super) fn digest(text: &str) -> TextDigest {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    short
}

/// The content of one document.
type Outcomes = Vec<Result<Decoded, DecodeError>>;

/// Number of documents below which a file is parsed again as a whole, which costs less than remembering them.
const WORTH_REMEMBERING: usize = 16;

/// Documents of large files by digest: a document that did not change is not parsed again, wherever it moved.
#[derive(Debug, Default)]
pub(super) struct Documents {
    known: HashMap<TextDigest, Weak<Outcomes>>,
    limits: decode::Limits,
}

impl Documents {
    pub(super) fn new(limits: decode::Limits) -> Self {
        Self {
            known: HashMap::new(),
            limits,
        }
    }

    fn decode(&mut self, text: &str, remember: bool) -> Arc<Outcomes> {
        if !remember {
            return Arc::new(decode(text, &self.limits));
        }
        let digest = digest(text);
        if let Some(outcomes) = self.known.get(&digest).and_then(Weak::upgrade) {
            return outcomes;
        }
        let mut outcomes = decode(text, &self.limits);
        outcomes.shrink_to_fit();
        let outcomes = Arc::new(outcomes);
        self.known.insert(digest, Arc::downgrade(&outcomes));
        outcomes
    }

    /// Drops documents that no file holds any more, if there are enough of them to be worth a pass.
    pub(super) fn collect(&mut self, held: usize) {
        if self.known.len() > held.saturating_mul(2) + 1024 {
            self.known.retain(|_, outcomes| outcomes.strong_count() > 0);
        }
    }
}

/// The state of one file.
#[derive(Debug, Default)]
pub(super) struct ManifestFile {
    /// Stamp of the file when it was read; none asks for another read at the next look.
    pub(super) stamp: Option<Stamp>,
    /// Digest of the text that was read last.
    pub(super) digest: Option<TextDigest>,
    /// True if the last attempt to read it failed.
    pub(super) unread: bool,
    /// Size in bytes.
    pub(super) size: u64,
    /// Objects in use: the first of each key, and those that stay of documents that broke.
    pub(super) objects: Objects,
    /// True if everything in it is good.
    pub(super) good: bool,
    pub(super) problems: Vec<Problem>,
    /// Documents of a large file, which are remembered as long as they are here.
    documents: Vec<Arc<Outcomes>>,
}

/// The outcome of reading a file.
pub(super) enum Content<'a> {
    Text(&'a str),
    /// The reason.
    Unreadable(String),
}

impl ManifestFile {
    pub(super) fn documents(&self) -> usize {
        self.documents.len()
    }

    /// Takes the new content. `before` gives the objects of the last good version if this process has
    /// not seen the file yet. Returns the objects that are others now, and those that went.
    ///
    /// A document that broke keeps its object by key. If the key cannot be told, or was not there before,
    /// every object of the file stays that is not in a good document: rather serve what was deleted in
    /// the same edit than drop what was only mistyped.
    ///
    /// A file of no bytes keeps everything: that is how a file looks between an editor's truncation and its write,
    /// and how a full disk leaves it. To say "nothing", delete the file or leave a comment in it.
    pub(super) fn update(
        &mut self,
        path: &Path,
        content: &Content<'_>,
        cache: &mut Documents,
        before: impl FnOnce(&mut Documents) -> Objects,
    ) -> Vec<Named> {
        let name = path.to_string_lossy();
        let report = |line, object, severity, message| Problem {
            file: name.clone().into_owned(),
            line,
            object,
            severity,
            message,
        };
        let previous = std::mem::take(&mut self.objects);
        let mut now = Reading::new();
        let mut problems = Vec::new();
        let mut documents = Vec::new();
        let mut failures: Vec<(usize, Option<ObjectKey>, String)> = Vec::new();
        let mut keep_all = None;
        match content {
            Content::Unreadable(reason) => keep_all = Some((Severity::Error, reason.clone())),
            Content::Text("") => keep_all = Some((Severity::Warning, "is empty".to_owned())),
            Content::Text(text) => {
                let split: Vec<_> = split(text).into_iter().collect();
                let remember = split.len() >= WORTH_REMEMBERING;
                for document in split {
                    let outcomes = cache.decode(document.text, remember);
                    for outcome in outcomes.iter() {
                        let at = |line: usize| document.line + line - 1;
                        match outcome {
                            Ok(decoded) => {
                                let Decoded {
                                    object,
                                    line,
                                    unknown_fields,
                                } = decoded;
                                let line = at(*line);
                                let key = object.key();
                                if let Some(first) = now.get(&key) {
                                    let message = format!(
                                        "is already declared in line {} of this file, which is used; remove one",
                                        first.line
                                    );
                                    problems.push(report(
                                        Some(line),
                                        Some(key),
                                        Severity::Error,
                                        message,
                                    ));
                                    continue;
                                }
                                for (line, field) in unknown_fields {
                                    let (severity, message) = unknown(field);
                                    let (line, key) = (Some(at(*line)), Some(key.clone()));
                                    problems.push(report(line, key, severity, message));
                                }
                                let object = match previous.find(&key) {
                                    Some(before) if before == object => before.clone(),
                                    _ => object.clone(),
                                };
                                now.insert(key, Held { object, line });
                            }
                            Err(error) if error.is_unsupported() => {
                                let message = error.reason.to_string();
                                problems.push(report(
                                    Some(at(error.line)),
                                    None,
                                    Severity::Warning,
                                    message,
                                ));
                            }
                            Err(error) => failures.push((
                                at(error.line),
                                error.object.clone(),
                                error.reason.to_string(),
                            )),
                        }
                    }
                    if remember {
                        documents.push(outcomes);
                    }
                }
            }
        }
        self.good = failures.is_empty() && keep_all.is_none();
        let stored;
        let earlier = if !self.good && self.digest.is_none() && previous.is_empty() {
            stored = before(cache);
            &stored
        } else {
            &previous
        };
        if let Some((severity, reason)) = keep_all {
            now = earlier.at(None).collect();
            let message = match (earlier.len(), severity) {
                (0, Severity::Warning) => None,
                (0, Severity::Error) => Some(reason),
                (count, _) => Some(format!(
                    "{reason}; {count} objects of its last good version stay in use"
                )),
            };
            problems.extend(message.map(|message| report(None, None, severity, message)));
        }
        for (line, key, reason) in failures {
            let kept = keep(&mut now, earlier, key.as_ref(), line);
            let message = match kept {
                Kept::Itself => format!("{reason}; the last good version stays in use"),
                Kept::Others(0) => format!("{reason}; it is not served"),
                Kept::Others(count) => format!(
                    "{reason}; it is not served, and {count} objects that the file held before stay in use"
                ),
            };
            problems.push(report(Some(line), key, Severity::Error, message));
        }
        let now = Objects::from(now);
        let mut changed: Vec<_> = now
            .iter()
            .filter(|object| !previous.holds(object))
            .cloned()
            .collect();
        changed.extend(
            previous
                .iter()
                .filter(|old| now.get(old).is_none())
                .cloned(),
        );
        self.objects = now;
        self.problems = problems;
        documents.shrink_to_fit();
        self.documents = documents;
        self.digest = match content {
            Content::Text(text) => Some(digest(text)),
            Content::Unreadable(_) => self.digest,
        };
        changed
    }
}

enum Kept {
    Itself,
    Others(usize),
}

/// Keeps the objects of `earlier` that a broken document may have held.
fn keep(now: &mut Reading, earlier: &Objects, key: Option<&ObjectKey>, line: usize) -> Kept {
    if let Some(key) = key {
        if now.contains_key(key) {
            return Kept::Others(0);
        }
        if let Some(object) = earlier.find(key) {
            let object = object.clone();
            now.insert(key.clone(), Held { object, line });
            return Kept::Itself;
        }
    }
    let mut count = 0;
    for (key, held) in earlier.at(Some(line)) {
        now.entry(key).or_insert_with(|| {
            count += 1;
            held
        });
    }
    Kept::Others(count)
}

/// Returns the objects of a text that was good.
pub(super) fn objects(text: &str, cache: &mut Documents) -> Objects {
    let mut objects = Reading::new();
    for document in split(text) {
        for decoded in cache.decode(document.text, false).iter().flatten() {
            let held = Held {
                object: decoded.object.clone(),
                line: document.line,
            };
            objects.entry(decoded.object.key()).or_insert(held);
        }
    }
    objects.into()
}

fn unknown(field: &UnknownField) -> (Severity, String) {
    if field.protects {
        let message = format!(
            "the field {field} is not known and may protect something: what it stands in is not served"
        );
        return (Severity::Error, message);
    }
    let message = format!("the field {field} is not known and has no effect");
    (Severity::Warning, message)
}
