//! The state of a conversion: the indexed input, the output and the verdicts.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use sesame_kinds::api::{GATEWAY_GROUP, SESAME_GROUP};

use super::envoy_gateway::InputIndex;
use super::verdicts::{FieldRow, FieldVerdict, VerdictLog};

/// Kind, namespace and name of an object. Cluster-scoped objects have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectId {
    pub(super) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the identity of an object. Objects without a namespace are in `default`. The kinds
    /// of other groups end in their group, because they may have the name of a known kind.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = match version.split_once('/') {
            Some((group, _)) if !PLAIN_GROUPS.contains(&group) => {
                format!("{}.{group}", text(&object["kind"]))
            }
            _ => text(&object["kind"]),
        };
        let namespace = match object["metadata"]["namespace"].as_str() {
            _ if CLUSTER_SCOPED.contains(&kind.as_str()) => "",
            None | Some("") => "default",
            Some(namespace) => namespace,
        };
        Self {
            namespace: namespace.to_owned(),
            name: text(&object["metadata"]["name"]),
            kind,
        }
    }
}

/// Groups whose kinds have different names.
const PLAIN_GROUPS: [&str; 8] = [
    "discovery.k8s.io",
    "gateway.envoyproxy.io",
    "networking.k8s.io",
    "projectcontour.io",
    "traefik.containo.us",
    "traefik.io",
    GATEWAY_GROUP,
    SESAME_GROUP,
];
const CLUSTER_SCOPED: [&str; 3] = ["GatewayClass", "IngressClass", "Namespace"];

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        if namespace.is_empty() {
            write!(f, "{kind}/{name}")
        } else {
            write!(f, "{kind}/{namespace}/{name}")
        }
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The verdicts on one input object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectRows {
    pub(crate) object: ObjectId,
    /// Objects that are left out if a protection is refused.
    #[serde(skip)]
    pub(super) protects: BTreeSet<ObjectId>,
    #[serde(rename = "fields")]
    pub(crate) rows: Vec<FieldRow>,
}

/// An output object, and the input objects that it was made from.
#[derive(Clone, Debug)]
pub(super) struct OutputObject {
    pub(super) value: Value,
    pub(super) sources: BTreeSet<ObjectId>,
}

/// Returns the objects of a kind.
pub(super) fn of_kind<'i>(
    inputs: &BTreeMap<ObjectId, &'i Value>,
    kind: &str,
) -> Vec<(ObjectId, &'i Value)> {
    let own = inputs.range(ObjectId::new(kind, "", "")..);
    let own = own.take_while(|(id, _)| id.kind == kind);
    own.map(|(id, object)| (id.clone(), *object)).collect()
}

#[derive(Debug)]
pub(super) struct Draft<'a> {
    input: BTreeMap<ObjectId, &'a Value>,
    pub(super) outputs: BTreeMap<ObjectId, OutputObject>,
    pub(super) verdicts: BTreeMap<ObjectId, ObjectRows>,
    /// Namespaces and names of Services that have a BackendPolicy.
    pub(super) claimed: BTreeSet<(String, String)>,
    index: OnceCell<InputIndex>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(objects: &'a [Value]) -> Self {
        let mut draft = Self {
            input: BTreeMap::new(),
            outputs: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            claimed: BTreeSet::new(),
            index: OnceCell::new(),
        };
        for object in objects {
            let id = ObjectId::of(object);
            if draft.input.insert(id.clone(), object).is_some() {
                let reason = "the input contains this object twice";
                draft.refuse(&id, "metadata.name", reason, "remove one of the two");
            }
        }
        draft
    }

    /// Returns the input objects, sorted.
    pub(super) fn inputs(&self) -> Vec<(ObjectId, &'a Value)> {
        let objects = self.input.iter();
        objects.map(|(id, value)| (id.clone(), *value)).collect()
    }

    /// Like [`Self::inputs`], but borrows the identities.
    pub(super) fn borrowed_inputs(&self) -> impl Iterator<Item = (&ObjectId, &'a Value)> {
        self.input.iter().map(|(id, value)| (id, *value))
    }

    pub(super) fn index(&self) -> &InputIndex {
        self.index.get_or_init(|| InputIndex::of(self))
    }

    /// Returns the input objects of a kind in a namespace.
    pub(super) fn inputs_in(
        &self,
        kind: &str,
        namespace: &str,
    ) -> impl Iterator<Item = (&ObjectId, &'a Value)> {
        let first = ObjectId::new(kind, namespace, "");
        let (kind, namespace) = (kind.to_owned(), namespace.to_owned());
        let rest = self.input.range(first..);
        let own = rest.take_while(move |(id, _)| id.kind == kind && id.namespace == namespace);
        own.map(|(id, value)| (id, *value))
    }

    pub(super) fn input(&self, id: &ObjectId) -> Option<&'a Value> {
        self.input.get(id).copied()
    }

    /// Adds an object that was made from several objects. Refuses to replace another object.
    pub(super) fn add_from(&mut self, sources: &BTreeSet<ObjectId>, value: Value) {
        let id = ObjectId::of(&value);
        if let Some(first) = sources.first() {
            self.add(first, value);
        }
        if let Some(output) = self.outputs.get_mut(&id) {
            output.sources.extend(sources.iter().cloned());
        }
    }

    /// Adds an object that was made from `source`. Refuses to replace another object.
    pub(super) fn add(&mut self, source: &ObjectId, value: Value) {
        let id = ObjectId::of(&value);
        if self.outputs.contains_key(&id) {
            let reason = format!("another object also becomes {id}");
            self.refuse(source, "metadata.name", &reason, "rename one of the two");
            return;
        }
        let sources = BTreeSet::from([source.clone()]);
        self.outputs.insert(id, OutputObject { value, sources });
    }

    /// Returns an output object to be changed on behalf of `source`.
    pub(super) fn change(&mut self, id: &ObjectId, source: &ObjectId) -> Option<&mut Value> {
        let output = self.outputs.get_mut(id)?;
        output.sources.insert(source.clone());
        Some(&mut output.value)
    }

    /// Records the verdicts on an object, and the objects that it protects.
    pub(super) fn record(
        &mut self,
        object: &ObjectId,
        log: &VerdictLog,
        protects: impl IntoIterator<Item = ObjectId>,
    ) {
        let entry = self.entry(object);
        entry.rows.extend(log.take());
        entry.protects.extend(protects);
    }

    /// Records that an object becomes nothing.
    pub(super) fn unneeded(&mut self, object: &ObjectId, reason: &str) {
        let log = VerdictLog::default();
        let reason = reason.to_owned();
        log.record("kind", FieldVerdict::NotNeeded { reason });
        self.record(object, &log, []);
    }

    /// Refuses an object because of a field that might protect something.
    pub(super) fn refuse(&mut self, object: &ObjectId, field: &str, reason: &str, remedy: &str) {
        self.entry(object).rows.push(FieldRow {
            path: field.to_owned(),
            verdict: FieldVerdict::refused(reason, remedy, true),
        });
    }

    pub(super) fn entry(&mut self, object: &ObjectId) -> &mut ObjectRows {
        let entry = self.verdicts.entry(object.clone());
        entry.or_insert_with(|| ObjectRows {
            object: object.clone(),
            protects: BTreeSet::new(),
            rows: Vec::new(),
        })
    }
}

/// Builds an object of one of Sesame's kinds.
#[allow(clippy::needless_pass_by_value, reason = "the object contains them")]
pub(super) fn sesame_object(kind: &str, metadata: Map<String, Value>, spec: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}
