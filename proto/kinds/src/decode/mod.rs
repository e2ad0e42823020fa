//! Decodes objects from YAML, from JSON, and from API servers.
//!
//! No API server validates objects in hosts' files. Anything that an API server would reject, such
//! as a duplicate key, is therefore an error here. Decoding never repairs an object or guesses its
//! meaning. Errors never quote a Secret, and limits are checked before memory is allocated.

mod at;
mod error;
mod expected;
mod fault;
mod names;
mod notes;
mod protecting;
mod similar;
mod sniff;
mod split;
mod tree;
mod typed;
mod value;
mod yaml;

#[cfg(test)]
mod tests;

pub use self::error::{DecodeError, Reason};
pub use self::split::{Document, split};
pub use self::value::{decode_value, from_value, parse_untyped};

use self::notes::{Notes, Unknown};
use self::sniff::Sniffed;
use self::tree::{Node, Value};
use crate::api::{FieldPath, Metadata, NamespacedName, PathStep, UnknownField, UnknownFields};
use crate::world::{AnyObject, Kind, ObjectKey};

/// Limits for one document: high enough for any real object, and low enough to prevent memory
/// exhaustion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum object size in bytes. The API server allows about 1.5 MiB.
    pub object_bytes: usize,
    /// Maximum `List` size in bytes. A `List` may contain an entire configuration.
    pub list_bytes: usize,
    /// Maximum nesting depth.
    pub depth: usize,
    /// Maximum number of aliases, and of anchors.
    pub aliases: usize,
    /// Maximum number of nodes after alias expansion.
    pub nodes: usize,
}

impl Default for DecodeLimits {
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

/// An object and its unknown fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object. Its namespace is `default` if the document omits the namespace, and empty for
    /// cluster-scoped objects.
    pub object: AnyObject,
    /// 1-based line on which the object starts.
    pub line: usize,
    /// Unknown fields with their lines. Empty unless the kind is fully modeled. Fields in `status`
    /// and `metadata` are not listed.
    pub unknown_fields: Vec<(usize, UnknownField)>,
}

/// Returns one result per object or `List` item, and an empty list for a blank document.
pub fn decode(text: &str, limits: &DecodeLimits) -> Vec<Result<Decoded, DecodeError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if split::is_blank(text) {
        return Vec::new();
    }
    match parse(text, limits) {
        Ok((tree, head)) if head.is_list() => decode_list(&tree, &head),
        Ok((tree, head)) => {
            let line = split::first_line(text);
            vec![decode_node(&tree, &head, line).map_err(|error| *error)]
        }
        Err(error) => vec![Err(*error)],
    }
}

/// Does not parse documents whose top-level lines name an unsupported kind.
fn parse(text: &str, limits: &DecodeLimits) -> Result<(Node, Head), Box<DecodeError>> {
    let fail = |line, object, reason| Box::new(DecodeError::new(line, object, reason));
    // If parsing fails, the top-level lines still identify the object in the error.
    let sniffed = Head::sniffed(text);
    let secret = sniffed
        .as_ref()
        .map_or_else(|| sniff::may_be_secret(text), |(_, secret)| *secret);
    let sniffed = sniffed.map(|(head, _)| head);
    let (mut object, mut limit, mut what) = (None, limits.list_bytes, "document");
    match &sniffed {
        Some(head) if head.is_list() => what = "list",
        Some(head) => {
            let kind = head.known().map_err(|reason| fail(1, None, reason))?;
            object = head.key(kind);
            limit = limits.object_bytes;
        }
        None => {}
    }
    if text.len() > limit {
        return Err(fail(1, object, Reason::too_large(what, text.len(), limit)));
    }
    let tree: Node = serde_saphyr::from_str_with_options(text, yaml::options(limits))
        .map_err(|error| Box::new(yaml::error(&error, object, secret)))?;
    let line = split::first_line(text);
    let head = Head::of(&tree, None).map_err(|reason| fail(line, None, reason))?;
    if sniffed
        .is_some_and(|sniffed| sniffed.kind != head.kind || sniffed.api_version != head.api_version)
    {
        // The guess was wrong: an apparent key was part of a value.
        let reason = Reason::Invalid(
            "cannot determine `kind` and `apiVersion` from the text; indent the values of the \
            document"
                .to_owned(),
        );
        return Err(fail(line, None, reason));
    }
    if !head.is_list() && text.len() > limits.object_bytes {
        let reason = Reason::too_large("document", text.len(), limits.object_bytes);
        return Err(fail(1, None, reason));
    }
    Ok((tree, head))
}

#[derive(Debug)]
struct Head {
    api_version: String,
    kind: String,
    name: NamespacedName,
}

impl Head {
    /// The boolean is true if an error message might quote a Secret.
    fn sniffed(text: &str) -> Option<(Self, bool)> {
        let Sniffed {
            api_version,
            kind,
            namespace,
            name,
            ambiguous,
        } = Sniffed::of(text);
        let (api_version, kind) = (api_version?, kind?);
        let head = Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: NamespacedName::new(namespace.unwrap_or_default(), name.unwrap_or_default()),
        };
        let secret = kind == Kind::Secret.as_str()
            || (ambiguous || head.is_list()) && sniff::may_be_secret(text);
        Some((head, secret))
    }

    /// `typed` is the API version and kind for list items that specify neither.
    fn of(tree: &Node, typed: Option<(&str, &str)>) -> Result<Self, Reason> {
        if !matches!(tree.value, Value::Map(_)) {
            return Err(Reason::Invalid(
                "expected a mapping with `apiVersion`, `kind` and `metadata`".to_owned(),
            ));
        }
        let text = |field| match tree.get(field).map(|node| &node.value) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::Text(text)) => Ok(text.as_ref()),
            Some(_) => Err(Reason::Invalid(format!("`{field}` is not text"))),
        };
        let mut api_version = text("apiVersion")?;
        let mut kind = text("kind")?;
        if let ("", "", Some(typed)) = (api_version, kind, typed) {
            (api_version, kind) = typed;
        }
        for (field, value) in [("kind", kind), ("apiVersion", api_version)] {
            if value.is_empty() {
                return Err(Reason::missing(field));
            }
        }
        // The `typed` module reports values that are not strings.
        let metadata = |field| {
            let node = tree
                .get("metadata")
                .and_then(|metadata| metadata.get(field));
            node.and_then(Node::text).unwrap_or_default()
        };
        Ok(Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: NamespacedName::new(metadata("namespace"), metadata("name")),
        })
    }

    /// Also returns true for typed lists, such as the output of `kubectl get --raw`.
    fn is_list(&self) -> bool {
        self.kind.ends_with("List")
    }

    fn known(&self) -> Result<Kind, Reason> {
        Kind::find(&self.api_version, &self.kind).ok_or_else(|| Reason::Unsupported {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        })
    }

    /// Returns `None` if the object has no name.
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

fn scoped(kind: Kind, given: &str) -> &str {
    match (kind.cluster_scoped(), given) {
        (true, _) => "",
        (false, "") => "default",
        (false, given) => given,
    }
}

fn decode_list(list: &Node, head: &Head) -> Vec<Result<Decoded, DecodeError>> {
    let fail = |reason| vec![Err(DecodeError::new(1, None, reason))];
    let item_kind = head.kind.strip_suffix("List").unwrap_or_default();
    let untyped = item_kind.is_empty();
    if untyped && head.api_version != "v1"
        || !untyped && Kind::find(&head.api_version, item_kind).is_none()
    {
        return fail(Reason::Unsupported {
            api_version: head.api_version.clone(),
            kind: head.kind.clone(),
        });
    }
    let items: &[Node] = match list.get("items").map(|items| &items.value) {
        Some(Value::List(items)) => items,
        None | Some(Value::Null) => &[],
        Some(_) => return fail(Reason::Invalid("`items` is not a list".to_owned())),
    };
    let typed = (!untyped).then_some((head.api_version.as_str(), item_kind));
    items
        .iter()
        .map(|item| decode_item(item, typed).map_err(|error| *error))
        .collect()
}

/// `typed` is the API version and kind for items that specify neither.
fn decode_item(item: &Node, typed: Option<(&str, &str)>) -> Result<Decoded, Box<DecodeError>> {
    let line = usize::try_from(item.line).unwrap_or(1).max(1);
    let fail = |reason| Box::new(DecodeError::new(line, None, reason));
    let head = Head::of(item, typed).map_err(fail)?;
    if head.is_list() {
        return Err(fail(Reason::Invalid(
            "nested lists are not supported".to_owned(),
        )));
    }
    decode_node(item, &head, line)
}

/// Errors about security-relevant policies include a stand-in policy.
fn decode_node(node: &Node, head: &Head, line: usize) -> Result<Decoded, Box<DecodeError>> {
    decode_whole(node, head, line).map_err(|mut error| {
        error.stand_in = stand_in(node, head, line).map(Box::new);
        error
    })
}

/// Returns a policy that rejects all requests to the unreadable policy's targets, because the
/// unreadable part might be security-relevant.
fn stand_in(node: &Node, head: &Head, line: usize) -> Option<AnyObject> {
    let kind = head.known().ok()?;
    if !matches!(kind, Kind::AccessPolicy | Kind::TrafficPolicy) {
        return None;
    }
    let mut node = node.clone();
    let Value::Map(entries) = &mut node.value else {
        return None;
    };
    let spec = entries.iter_mut().find(|entry| &*entry.key == "spec")?;
    if let Value::Map(fields) = &mut spec.value.value {
        fields.retain(|field| &*field.key == "targetRefs");
    }
    let mut decoded = decode_whole(&node, head, line).ok()?;
    let unreadable = UnknownField {
        path: FieldPath(Box::new([PathStep::Field("spec".into())])),
        similar: None,
        protects: true,
    };
    decoded.object.metadata_mut().unknown = UnknownFields::new(vec![unreadable], 0, false);
    Some(decoded.object)
}

/// Like [`decode_node`], but errors never include a stand-in.
fn decode_whole(node: &Node, head: &Head, line: usize) -> Result<Decoded, Box<DecodeError>> {
    let kind = head
        .known()
        .map_err(|reason| DecodeError::new(line, None, reason))?;
    let fail = |at: Option<u32>, reason| {
        let at = at
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at > 0);
        Box::new(DecodeError::new(at.unwrap_or(line), head.key(kind), reason))
    };
    let notes = Notes {
        beside: match kind {
            // `status` is only read for Pods.
            Kind::Pod => &["apiVersion", "kind"],
            _ => &["apiVersion", "kind", "status"],
        },
        is_modelled: kind.is_modelled(),
        ..Notes::default()
    };
    let mut object = typed::read(kind, node, &notes).map_err(|fault| {
        let (at, reason) = fault.into_reason(kind == Kind::Secret);
        fail(at, reason)
    })?;
    let Unknown {
        fields,
        more: (harmless, protecting),
    } = notes.unknown.into_inner();
    let Metadata {
        name, namespace, ..
    } = object.metadata();
    if name.is_empty() {
        return Err(fail(None, Reason::missing("metadata.name")));
    }
    let has_spec = node
        .get("spec")
        .is_some_and(|spec| !matches!(spec.value, Value::Null));
    if kind.is_modelled() && !has_spec {
        return Err(fail(None, Reason::missing("spec")));
    }
    let namespace = scoped(kind, namespace).to_owned();
    let metadata = object.metadata_mut();
    metadata.namespace = namespace;
    let unknown = fields.iter().map(|(_, field)| field.clone()).collect();
    metadata.unknown = UnknownFields::new(unknown, harmless, protecting > 0);
    names::check(&object).map_err(|reason| {
        let at = match &reason {
            Reason::Name { field, .. } => node.line_of(field),
            _ => None,
        };
        fail(at, reason)
    })?;
    let line_number = |at: u32| usize::try_from(at).unwrap_or(line).max(1);
    let unknown_fields = fields
        .into_iter()
        .map(|(at, field)| (line_number(at), field));
    Ok(Decoded {
        object,
        line,
        unknown_fields: unknown_fields.collect(),
    })
}
