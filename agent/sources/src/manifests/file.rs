//! One manifest: its documents, and the objects that remain in use if documents are broken.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use sesame_kinds::api::UnknownField;
use sesame_kinds::decode::{self, DecodeError, Decoded, decode, split};
use sesame_kinds::world::{AnyObject, ObjectKey};
use sha2::{Digest as _, Sha256};

use super::objects::{DeclaredObject, FileObjects, KeyedObject, Reading};
use super::tree::Stamp;
use crate::problem::{Severity, SourceProblem};

/// Truncated SHA-256, long enough to distinguish documents.
pub(super) type TextDigest = [u8; 16];

pub(super) fn digest(text: &str) -> TextDigest {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    short
}

type DecodedDocument = Vec<Result<Decoded, DecodeError>>;

/// Minimum number of documents to cache. Reparsing a file with fewer is cheaper.
const MIN_CACHED_DOCUMENTS: usize = 16;

/// Documents of large files, by digest. An unchanged document is not reparsed, even if it moves to
/// another line.
#[derive(Debug, Default)]
pub(super) struct Documents {
    known: HashMap<TextDigest, Weak<DecodedDocument>>,
    limits: decode::DecodeLimits,
}

impl Documents {
    pub(super) fn new(limits: decode::DecodeLimits) -> Self {
        Self {
            known: HashMap::new(),
            limits,
        }
    }

    fn decode(&mut self, text: &str, remember: bool) -> Arc<DecodedDocument> {
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

    pub(super) fn collect(&mut self, held: usize) {
        if self.known.len() > held.saturating_mul(2) + 1024 {
            self.known.retain(|_, outcomes| outcomes.strong_count() > 0);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ManifestFile {
    /// Stamp from before the last read. `None` makes the next scan read the file again.
    pub(super) stamp: Option<Stamp>,
    pub(super) digest: Option<TextDigest>,
    pub(super) unread: bool,
    /// Reading the unchanged file again may succeed.
    pub(super) retry: bool,
    pub(super) size: u64,
    /// Includes objects kept because of broken documents.
    pub(super) objects: FileObjects,
    pub(super) good: bool,
    pub(super) problems: Vec<SourceProblem>,
    /// Keeps the documents of a large file in the cache.
    documents: Vec<Arc<DecodedDocument>>,
}

pub(super) enum FileContent<'a> {
    Text(&'a str),
    Unreadable(String),
}

impl ManifestFile {
    pub(super) fn documents(&self) -> usize {
        self.documents.len()
    }

    /// Returns the changed and removed objects. On the first read, `before` provides the last good
    /// objects.
    ///
    /// A broken document keeps its previous object if its kind and name are readable and known.
    /// Otherwise, the file keeps all previous objects: serving a deleted object is better than
    /// dropping a mistyped one.
    ///
    /// An empty file also keeps all objects, because editors truncate files before writing, and
    /// disks fill up. To remove all objects, delete the file, or leave only a comment in it.
    pub(super) fn update(
        &mut self,
        path: &Path,
        content: &FileContent<'_>,
        cache: &mut Documents,
        before: impl FnOnce(&mut Documents) -> FileObjects,
    ) -> Vec<KeyedObject> {
        let file = path.to_string_lossy();
        let previous = std::mem::take(&mut self.objects);
        let mut reading = FileReading::new(&file);
        let keep_all = match content {
            FileContent::Unreadable(reason) => Some((Severity::Error, reason.clone())),
            FileContent::Text("") => Some((Severity::Warning, "is empty".to_owned())),
            FileContent::Text(text) => {
                reading.read(text, &previous, cache);
                None
            }
        };
        self.good = reading.failures.is_empty() && keep_all.is_none();
        let stored;
        let earlier = if !self.good && self.digest.is_none() && previous.is_empty() {
            stored = before(cache);
            &stored
        } else {
            &previous
        };
        match keep_all {
            Some((severity, reason)) => reading.keep_all(earlier, severity, reason),
            None => reading.keep_broken(earlier),
        }
        let now = FileObjects::from(reading.objects);
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
        self.problems = reading.problems;
        reading.documents.shrink_to_fit();
        self.documents = reading.documents;
        self.digest = match content {
            FileContent::Text(text) => Some(digest(text)),
            FileContent::Unreadable(_) => self.digest,
        };
        changed
    }
}

struct FileReading<'a> {
    file: &'a str,
    objects: Reading,
    problems: Vec<SourceProblem>,
    failures: Vec<BrokenDocument>,
    documents: Vec<Arc<DecodedDocument>>,
}

impl<'a> FileReading<'a> {
    fn new(file: &'a str) -> Self {
        Self {
            file,
            objects: Reading::new(),
            problems: Vec::new(),
            failures: Vec::new(),
            documents: Vec::new(),
        }
    }

    fn report(
        &mut self,
        line: usize,
        object: Option<&ObjectKey>,
        severity: Severity,
        message: String,
    ) {
        self.problems.push(SourceProblem {
            file: self.file.to_owned(),
            line,
            object: object.map(ToString::to_string),
            severity,
            message,
            hidden_by: None,
        });
    }

    fn read(&mut self, text: &str, previous: &FileObjects, cache: &mut Documents) {
        let split: Vec<_> = split(text).into_iter().collect();
        let remember = split.len() >= MIN_CACHED_DOCUMENTS;
        for document in split {
            let outcomes = cache.decode(document.text, remember);
            for outcome in outcomes.iter() {
                let at = |line: usize| document.line + line - 1;
                match outcome {
                    Ok(decoded) => self.add_object(decoded, at, previous),
                    Err(error) => {
                        let (line, reason) = (at(error.line), error.reason.to_string());
                        if error.is_unsupported() {
                            self.report(line, None, Severity::Warning, reason);
                        } else {
                            self.failures.push(BrokenDocument {
                                line,
                                key: error.object.clone(),
                                reason,
                                stand_in: error.stand_in.as_deref().cloned(),
                            });
                        }
                    }
                }
            }
            if remember {
                self.documents.push(outcomes);
            }
        }
    }

    /// An earlier document takes precedence. `at` maps line numbers from the document to the file.
    fn add_object(
        &mut self,
        decoded: &Decoded,
        at: impl Fn(usize) -> usize,
        previous: &FileObjects,
    ) {
        let Decoded {
            object,
            line,
            unknown_fields,
        } = decoded;
        let (line, key) = (at(*line), object.key());
        if let Some(first) = self.objects.get(&key) {
            let message = format!(
                "is already declared in line {} of this file, which takes precedence; remove one",
                first.line
            );
            return self.report(line, Some(&key), Severity::Error, message);
        }
        for (line, field) in unknown_fields {
            let (severity, message) = unknown(field);
            self.report(at(*line), Some(&key), severity, message);
        }
        let same = previous.find(&key).filter(|before| *before == object);
        let object = same.unwrap_or(object).clone();
        self.objects.insert(key, DeclaredObject { object, line });
    }

    fn keep_all(&mut self, earlier: &FileObjects, severity: Severity, reason: String) {
        self.objects = earlier.at(None).collect();
        let message = match (earlier.len(), severity) {
            (0, Severity::Warning) => return,
            (0, Severity::Error) => reason,
            (count, _) => {
                format!("{reason}; {count} objects of its last valid version stay in use")
            }
        };
        self.report(0, None, severity, message);
    }

    fn keep_broken(&mut self, earlier: &FileObjects) {
        for broken in std::mem::take(&mut self.failures) {
            let kept = keep(&mut self.objects, earlier, &broken);
            let BrokenDocument {
                line, key, reason, ..
            } = broken;
            let message = match kept {
                Kept::Itself => format!("{reason}; the last valid version stays in use"),
                Kept::StandIn => {
                    format!("{reason}; all requests to its targets get 500")
                }
                Kept::Others(0) => format!("{reason}; it is not served"),
                Kept::Others(count) => format!(
                    "{reason}; it is not served, and {count} previous objects of the file remain in use"
                ),
            };
            self.report(line, key.as_ref(), Severity::Error, message);
        }
    }
}

struct BrokenDocument {
    line: usize,
    /// Set if the kind and name could be read.
    key: Option<ObjectKey>,
    reason: String,
    /// Replaces an object that may be security-relevant, so that requests to its targets fail.
    stand_in: Option<AnyObject>,
}

enum Kept {
    Itself,
    StandIn,
    Others(usize),
}

fn keep(now: &mut Reading, earlier: &FileObjects, broken: &BrokenDocument) -> Kept {
    let line = broken.line;
    if let Some(key) = &broken.key {
        if now.contains_key(key) {
            return Kept::Others(0);
        }
        if let Some(object) = earlier.find(key) {
            let object = object.clone();
            now.insert(key.clone(), DeclaredObject { object, line });
            return Kept::Itself;
        }
        if let Some(object) = broken.stand_in.clone() {
            now.insert(key.clone(), DeclaredObject { object, line });
            return Kept::StandIn;
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

pub(super) fn objects(text: &str, cache: &mut Documents) -> FileObjects {
    let mut objects = Reading::new();
    for document in split(text) {
        for decoded in cache.decode(document.text, false).iter().flatten() {
            let held = DeclaredObject {
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
            "unknown field {field}: it may be security-relevant, so the part that contains it is not served"
        );
        return (Severity::Error, message);
    }
    let message = format!("unknown field {field}: it has no effect");
    (Severity::Warning, message)
}
