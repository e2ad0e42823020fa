//! Leaves out objects whose protections could not be converted, and everything that depends on
//! them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Conversion;
use super::check::unreadable;
use super::draft::{Draft, ObjectId, ObjectRows, OutputObject};
use super::verdicts::{AcceptedLosses, FieldRow, FieldVerdict, RefusedField};

const ROUTES: [&str; 5] = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];

pub(super) fn finish(mut draft: Draft, accepted: &[String]) -> Conversion {
    let unwritable = refuse_unreadable(&mut draft);
    let mut losses = AcceptedLosses::new(accepted);
    let mut stopped: BTreeMap<ObjectId, String> = BTreeMap::new();
    for (id, object) in &mut draft.verdicts {
        losses.mark(&id.to_string(), &mut object.rows);
        let Some(row) = object.rows.iter().find(|row| row.verdict.stops()) else {
            continue;
        };
        let why = format!("{id} needs {}, which was refused", row.accepted_as());
        stopped.entry(id.clone()).or_insert_with(|| why.clone());
        let targets = if object.protects.is_empty() {
            // The targets are unknown, so any object in the namespace might be one.
            namespace_of(&draft.outputs, &id.namespace)
        } else {
            object.protects.clone()
        };
        for target in targets {
            stopped.entry(target).or_insert_with(|| why.clone());
        }
    }
    spread(&draft.outputs, &mut stopped);
    let mut objects = Vec::new();
    let mut comments = BTreeMap::new();
    for (id, output) in draft.outputs {
        let OutputObject { mut value, sources } = output;
        let source = sources.iter().find_map(|source| stopped.get(source));
        if let Some(why) = source.cloned() {
            stopped.entry(id).or_insert(why);
        } else if !stopped.contains_key(&id)
            && !unwritable.contains(&id)
            && keep_targets(&mut value, &id, &stopped)
        {
            comments.insert(id.clone(), choices(&id, &sources, &draft.verdicts));
            objects.push(value);
        }
    }
    Conversion {
        objects,
        comments,
        rows: draft.verdicts.into_values().collect(),
        stopped: stopped.into_iter().collect(),
        unused: losses.unused(),
    }
}

/// Returns the comments for an output object: its differences from the input, and settings that
/// the caller agreed to lose.
fn choices(
    id: &ObjectId,
    sources: &BTreeSet<ObjectId>,
    verdicts: &BTreeMap<ObjectId, ObjectRows>,
) -> Vec<String> {
    let rows = sources.iter().filter_map(|source| verdicts.get(source));
    let rows = rows.flat_map(|object| &object.rows);
    let mut choices: Vec<String> = Vec::new();
    for row in rows {
        let name = row.accepted_as();
        let choice = match &row.verdict {
            FieldVerdict::Differs { to, difference }
                if to.split(' ').next() == Some(id.kind.as_str()) =>
            {
                format!("{name}: {difference}")
            }
            FieldVerdict::Refused(RefusedField { accepted: true, .. })
                if ROUTES.contains(&id.kind.as_str()) =>
            {
                format!("{name}: left out")
            }
            _ => continue,
        };
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    }
    choices
}

/// Returns the objects that must not be written, even if the caller accepts the loss.
fn refuse_unreadable(draft: &mut Draft) -> BTreeSet<ObjectId> {
    let mut found = Vec::new();
    let mut unwritable = BTreeSet::new();
    for (id, output) in &draft.outputs {
        for field in unreadable(&output.value) {
            if field.is_fatal {
                unwritable.insert(id.clone());
            }
            found.extend(output.sources.iter().map(|source| {
                let reason = format!("{id} would be unreadable: {}", field.reason);
                let remedy = "correct the field, or remove it";
                let row = FieldRow {
                    path: field.path.clone(),
                    verdict: FieldVerdict::refused(&reason, remedy, field.protects),
                };
                (source.clone(), row)
            }));
        }
    }
    for (source, row) in found {
        let object = draft.entry(&source);
        object.protects.insert(source);
        object.rows.push(row);
    }
    unwritable
}

fn namespace_of(outputs: &BTreeMap<ObjectId, OutputObject>, namespace: &str) -> BTreeSet<ObjectId> {
    let served = |id: &&ObjectId| {
        let is_served = id.kind == "Gateway" || ROUTES.contains(&id.kind.as_str());
        is_served && (id.namespace == namespace || namespace.is_empty())
    };
    outputs.keys().filter(served).cloned().collect()
}

/// Also stops Gateways of stopped classes, and ListenerSets and routes of stopped parents.
fn spread(outputs: &BTreeMap<ObjectId, OutputObject>, stopped: &mut BTreeMap<ObjectId, String>) {
    // A route's parent may be a ListenerSet, whose parent is a Gateway of a class.
    for kinds in [&["Gateway"][..], &["ListenerSet"], &ROUTES] {
        for (id, output) in outputs {
            if !kinds.contains(&id.kind.as_str()) || stopped.contains_key(id) {
                continue;
            }
            let parent = parents(id, &output.value);
            let parent = parent
                .into_iter()
                .find(|parent| stopped.contains_key(parent));
            if let Some(parent) = parent {
                stopped.insert(id.clone(), format!("{parent} is left out"));
            }
        }
    }
}

/// Returns the class of a Gateway, or the parents of a ListenerSet or route.
pub(super) fn parents(id: &ObjectId, object: &Value) -> Vec<ObjectId> {
    let spec = &object["spec"];
    if id.kind == "Gateway" {
        let class = spec["gatewayClassName"].as_str().unwrap_or_default();
        return vec![ObjectId::new("GatewayClass", "", class)];
    }
    let several = spec["parentRefs"].as_array().into_iter().flatten();
    let refs = several.chain(spec.get("parentRef"));
    let parents = refs.map(|parent| {
        let text = |field: &str| parent[field].as_str();
        let kind = text("kind").unwrap_or("Gateway");
        let namespace = text("namespace").unwrap_or(&id.namespace);
        ObjectId::new(kind, namespace, text("name").unwrap_or_default())
    });
    parents.collect()
}

/// Removes stopped targets from a policy. Returns false if no target is left.
fn keep_targets(value: &mut Value, id: &ObjectId, stopped: &BTreeMap<ObjectId, String>) -> bool {
    if !matches!(id.kind.as_str(), "AccessPolicy" | "TrafficPolicy") {
        return true;
    }
    let Some(Value::Array(targets)) = value.pointer_mut("/spec/targetRefs") else {
        return true;
    };
    targets.retain(|target| {
        let text = |field: &str| target[field].as_str().unwrap_or_default();
        let target = ObjectId::new(text("kind"), &id.namespace, text("name"));
        !stopped.contains_key(&target)
    });
    !targets.is_empty()
}
