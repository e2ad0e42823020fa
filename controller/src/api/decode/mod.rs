//! From the text of one YAML or JSON document to an object, or to an error that says where and why.
//!
//! Pure: it opens no file and keeps nothing. It never repairs or guesses: what the API server would refuse
//! (a duplicate key, a number where text is expected, a name that is no name) is refused here, because
//! on a host no API server looks first. What it bounds, it bounds before it allocates. No error ever quotes
//! a Secret.

mod error;
mod head;
mod names;
mod sniff;
mod split;
mod value;
mod yaml;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_ignored::Path;

pub use self::error::{DecodeError, Reason};
pub use self::split::{Document, split};
pub use self::value::decode_value;

use self::head::{Envelope, EnvelopeSeed};
use self::sniff::Sniffed;
use super::{Metadata, NamespacedName};
use crate::world::{AnyObject, Kind, ObjectKey};

/// What one document may be. The defaults are far above what a cluster stores and far below what hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one object; the API server stops at about 1.5 MiB.
    pub object_bytes: usize,
    /// Bytes of a `List`, which may hold a whole configuration.
    pub list_bytes: usize,
    /// Nested mappings and sequences.
    pub depth: usize,
    /// Aliases, and anchors, of one document.
    pub aliases: usize,
    /// Nodes that aliases may multiply one document to.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            object_bytes: 1 << 20,
            list_bytes: 16 << 20,
            depth: 48,
            aliases: 256,
            nodes: 2_000_000,
        }
    }
}

/// One object and what was in its text but is not modelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object. Its namespace is `default` when none was given, and empty when it is cluster-scoped.
    pub object: AnyObject,
    /// The line that it starts on: 1-based, within the document.
    pub line: usize,
    /// Paths of fields that this version does not know, as `spec.rules[0].retries`. Only for Gateway API
    /// kinds, whose fields are all modelled; `status` and `metadata` are not looked at.
    pub unknown_fields: Vec<String>,
}

/// Decodes one document: nothing for an empty one, one outcome for an object, and one for each item of
/// a `List`.
pub fn decode(text: &str, limits: &Limits) -> Vec<Result<Decoded, DecodeError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if split::is_blank(text) {
        return Vec::new();
    }
    match Head::of(text, limits) {
        Ok(head) if head.is_list() => decode_list(text, &head, limits),
        Ok(head) => vec![decode_object(text, &head, limits)],
        Err(error) => vec![Err(error)],
    }
}

/// What must be known of a document before it can be decoded.
#[derive(Debug)]
struct Head {
    api_version: String,
    kind: String,
    name: NamespacedName,
    /// Whether an error could quote a Secret.
    secret: bool,
}

/// The few fields that say what a document is, whatever else stands in it.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Peek {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: PeekMetadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PeekMetadata {
    name: Option<String>,
    namespace: Option<String>,
}

impl Head {
    /// From the lines at the margin where that is possible, which is cheap, else from a real parse.
    fn of(text: &str, limits: &Limits) -> Result<Self, DecodeError> {
        let sniffed = Sniffed::of(text);
        if let (Some(api_version), Some(kind)) = (sniffed.api_version, sniffed.kind) {
            return Ok(Self {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name: NamespacedName::new(
                    sniffed.namespace.unwrap_or_default(),
                    sniffed.name.unwrap_or_default(),
                ),
                secret: kind == Kind::Secret.as_str()
                    || sniffed.ambiguous && sniff::may_be_secret(text),
            });
        }
        let fail = |line, reason| DecodeError::new(line, None, reason);
        if text.len() > limits.list_bytes {
            return Err(fail(
                1,
                Reason::too_large("document", text.len(), limits.list_bytes),
            ));
        }
        let options = yaml::options(limits);
        let peek: Peek = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| yaml::error(&error, None, sniff::may_be_secret(text)))?;
        let Peek {
            api_version,
            kind,
            metadata,
        } = peek;
        let kind = kind.ok_or_else(|| fail(1, Reason::missing("kind")))?;
        Ok(Self {
            api_version: api_version.ok_or_else(|| fail(1, Reason::missing("apiVersion")))?,
            secret: kind == Kind::Secret.as_str(),
            kind,
            name: NamespacedName::new(
                &metadata.namespace.unwrap_or_default(),
                &metadata.name.unwrap_or_default(),
            ),
        })
    }

    /// `List` and the typed lists that `kubectl get --raw` prints.
    fn is_list(&self) -> bool {
        self.kind.ends_with("List")
    }

    /// The kind, or why objects of it are not read.
    fn known(&self) -> Result<Kind, Reason> {
        Kind::find(&self.api_version, &self.kind).ok_or_else(|| Reason::Unsupported {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        })
    }

    /// The object that an error is about, if it has a name.
    fn key(&self, kind: Kind) -> Option<ObjectKey> {
        if self.name.name.is_empty() {
            return None;
        }
        let namespace = scoped(kind, &self.name.namespace);
        Some(ObjectKey {
            kind,
            name: NamespacedName::new(namespace, &self.name.name),
        })
    }
}

/// The namespace that an object of the kind is in when `given` is written.
fn scoped(kind: Kind, given: &str) -> &str {
    match (kind.cluster_scoped(), given) {
        (true, _) => "",
        (false, "") => "default",
        (false, given) => given,
    }
}

fn decode_object(text: &str, head: &Head, limits: &Limits) -> Result<Decoded, DecodeError> {
    let kind = head
        .known()
        .map_err(|reason| DecodeError::new(1, None, reason))?;
    let key = head.key(kind);
    if text.len() > limits.object_bytes {
        let reason = Reason::too_large("document", text.len(), limits.object_bytes);
        return Err(DecodeError::new(1, key, reason));
    }
    let mut unknown_fields = Vec::new();
    let envelope = serde_saphyr::with_deserializer_from_str_with_options(
        text,
        yaml::options(limits),
        |from| envelope(kind, from, &mut unknown_fields),
    )
    .map_err(|error| yaml::error(&error, key.clone(), head.secret))?;
    let line = split::first_line(text);
    if envelope.kind != head.kind || envelope.api_version != head.api_version {
        // The margin lied: what looked like a key stands inside a value.
        let reason = Reason::Invalid(
            "`kind` and `apiVersion` cannot be told from the text; indent the values of the document"
                .to_owned(),
        );
        return Err(DecodeError::new(line, None, reason));
    }
    finish(kind, envelope, unknown_fields, line)
        .map_err(|reason| DecodeError::new(line, key, reason))
}

/// One item of a list, with the line that it starts on.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct List {
    items: Vec<serde_saphyr::Spanned<serde_json::Value>>,
}

fn decode_list(text: &str, list: &Head, limits: &Limits) -> Vec<Result<Decoded, DecodeError>> {
    let fail = |reason| vec![Err(DecodeError::new(1, None, reason))];
    let item_kind = list.kind.strip_suffix("List").unwrap_or_default();
    let untyped = item_kind.is_empty();
    if untyped && list.api_version != "v1"
        || !untyped && Kind::find(&list.api_version, item_kind).is_none()
    {
        return fail(Reason::Unsupported {
            api_version: list.api_version.clone(),
            kind: list.kind.clone(),
        });
    }
    if text.len() > limits.list_bytes {
        return fail(Reason::too_large("list", text.len(), limits.list_bytes));
    }
    let parsed: List = match serde_saphyr::from_str_with_options(text, yaml::options(limits)) {
        Ok(list) => list,
        Err(error) => {
            return vec![Err(yaml::error(&error, None, sniff::may_be_secret(text)))];
        }
    };
    let decode = |item: serde_saphyr::Spanned<serde_json::Value>| {
        let line = usize::try_from(item.referenced.line()).unwrap_or(1).max(1);
        decode_item(
            item.value,
            (!untyped).then_some((list.api_version.as_str(), item_kind)),
            // As text again: each way to read the types is a megabyte of code.
            |kind, value, unknown_fields| {
                serde_saphyr::with_deserializer_from_str_with_options(
                    &value.to_string(),
                    yaml::options(limits),
                    |from| envelope(kind, from, unknown_fields),
                )
                .map_err(|error| *yaml::error(&error, None, kind == Kind::Secret).reason)
            },
        )
        .map(|decoded| Decoded { line, ..decoded })
        .map_err(|error| DecodeError { line, ..error })
    };
    parsed.items.into_iter().map(decode).collect()
}

/// Decodes a value; `typed` is what it is if it does not say so itself, and `read` turns it into the type.
fn decode_item(
    item: serde_json::Value,
    typed: Option<(&str, &str)>,
    read: impl FnOnce(Kind, serde_json::Value, &mut Vec<String>) -> Result<Envelope, Reason>,
) -> Result<Decoded, DecodeError> {
    let text = |value: Option<&serde_json::Value>| {
        value
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let metadata = item.get("metadata");
    let mut head = Head {
        api_version: text(item.get("apiVersion")),
        kind: text(item.get("kind")),
        name: NamespacedName {
            namespace: text(metadata.and_then(|metadata| metadata.get("namespace"))),
            name: text(metadata.and_then(|metadata| metadata.get("name"))),
        },
        secret: false,
    };
    if let (true, true, Some((api_version, kind))) =
        (head.api_version.is_empty(), head.kind.is_empty(), typed)
    {
        api_version.clone_into(&mut head.api_version);
        kind.clone_into(&mut head.kind);
    }
    let fail = |object, reason| DecodeError::new(1, object, reason);
    if head.is_list() {
        return Err(fail(
            None,
            Reason::Invalid("a list inside a list is not read".to_owned()),
        ));
    }
    if head.kind.is_empty() || head.api_version.is_empty() {
        let field = if head.kind.is_empty() {
            "kind"
        } else {
            "apiVersion"
        };
        return Err(fail(None, Reason::missing(field)));
    }
    let kind = head.known().map_err(|reason| fail(None, reason))?;
    let key = head.key(kind);
    let mut unknown_fields = Vec::new();
    let envelope =
        read(kind, item, &mut unknown_fields).map_err(|reason| fail(key.clone(), reason))?;
    finish(kind, envelope, unknown_fields, 1).map_err(|reason| fail(key, reason))
}

/// Decodes an object of a known kind and notes what is not modelled.
fn envelope<'de, D: Deserializer<'de>>(
    kind: Kind,
    from: D,
    unknown_fields: &mut Vec<String>,
) -> Result<Envelope, D::Error> {
    use serde::de::DeserializeSeed;
    // One path for all kinds: the types are many, and each way to read them is a megabyte of code.
    let mut note = |path: Path<'_>| {
        // A hostile document must not fill the report.
        if kind.is_gateway_api() && unknown_fields.len() < 32 && !is_known(&path) {
            unknown_fields.push(path_text(&path));
        }
    };
    EnvelopeSeed(kind).deserialize(serde_ignored::Deserializer::new(from, &mut note))
}

/// What stands in every object and is not for us.
fn is_known(path: &Path<'_>) -> bool {
    match path {
        Path::Root => false,
        Path::Map {
            parent: Path::Root,
            key,
        } => key == "status" || key == "metadata",
        Path::Map { parent, .. }
        | Path::Seq { parent, .. }
        | Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => is_known(parent),
    }
}

fn path_text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Map { parent, key } => {
            let parent = path_text(parent);
            let key: String = key.chars().take(64).collect();
            if parent.is_empty() {
                key
            } else {
                format!("{parent}.{key}")
            }
        }
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => path_text(parent),
    }
}

/// Checks what the types cannot say, and settles the namespace.
fn finish(
    kind: Kind,
    envelope: Envelope,
    unknown_fields: Vec<String>,
    line: usize,
) -> Result<Decoded, Reason> {
    let Envelope {
        api_version: _,
        kind: _,
        has_spec,
        mut object,
    } = envelope;
    let Metadata {
        name, namespace, ..
    } = object.metadata();
    if name.is_empty() {
        return Err(Reason::missing("metadata.name"));
    }
    if kind.is_gateway_api() && !has_spec {
        return Err(Reason::missing("spec"));
    }
    let wanted = scoped(kind, namespace);
    if wanted != namespace {
        let wanted = wanted.to_owned();
        object.metadata_mut().namespace = wanted;
    }
    names::check(&object)?;
    Ok(Decoded {
        object,
        line,
        unknown_fields,
    })
}

/// A value that is read past.
type Skipped = IgnoredAny;
