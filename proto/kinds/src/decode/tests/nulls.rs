//! A null field counts as missing, whether it comes from a file or an API server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::super::*;

/// Returns objects of all kinds, with every field set.
pub(super) fn objects() -> Vec<Json> {
    split(include_str!("every_field.yaml"))
        .iter()
        .map(|document| {
            serde_saphyr::from_str_with_options(
                document.text,
                yaml::options(&DecodeLimits::default()),
            )
            .expect("YAML")
        })
        .collect()
}

/// In these maps with arbitrary keys, null means the empty string, as in Go.
pub(super) const MAPS: &[&str] = &[
    "annotations",
    "binaryData",
    "context",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "requests",
    "stringData",
];

pub(super) fn places(value: &Json, at: &str, found: &mut Vec<String>) {
    let below: Vec<(String, &Json)> = match value {
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (step, value) in below {
        let place = format!("{at}/{step}");
        found.push(place.clone());
        places(value, &place, found);
    }
}

fn read(object: &Json) -> [Result<AnyObject, String>; 2] {
    let simplify = |outcome: Result<Decoded, DecodeError>| match outcome {
        Ok(decoded) => Ok(decoded.object),
        Err(error) => Err(error.reason.to_string()),
    };
    let from_file = decode(&object.to_string(), &DecodeLimits::default()).remove(0);
    let (kind, version) = (object["kind"].as_str(), object["apiVersion"].as_str());
    let kind = Kind::find(version.unwrap_or_default(), kind.unwrap_or_default());
    let from_server = match kind {
        Some(kind) => decode_value(object.clone(), kind, version.unwrap_or_default()),
        None => from_file.clone(),
    };
    [simplify(from_file), simplify(from_server)]
}

#[test]
fn null_fields_decode_like_absent_ones() {
    let mut kinds = BTreeSet::new();
    for object in objects() {
        kinds.insert(object["kind"].to_string());
        for outcome in read(&object) {
            outcome.unwrap_or_else(|why| panic!("{why}\n{object:#}"));
        }
        let mut all = Vec::new();
        places(&object, "", &mut all);
        for place in all {
            let (parent, key) = place.rsplit_once('/').expect("starts with a slash");
            let mut null = object.clone();
            *null.pointer_mut(&place).expect("the field exists") = Json::Null;
            let mut absent = object.clone();
            let of = parent.rsplit('/').next().unwrap_or_default();
            match absent.pointer_mut(parent).expect("the field exists") {
                Json::Object(fields) if MAPS.contains(&of) => {
                    let key = key.replace("~1", "/");
                    fields.insert(key, json!(""));
                }
                Json::Object(fields) => {
                    fields.remove(key).expect("the field exists");
                }
                // In a list, null means an empty string or map.
                Json::Array(items) => {
                    let index: usize = key.parse().expect("an index");
                    match items.get_mut(index) {
                        Some(text @ Json::String(_)) => *text = json!(""),
                        Some(fields @ Json::Object(_)) => *fields = json!({}),
                        _ => continue,
                    }
                }
                _ => unreachable!("has a field"),
            }
            assert_eq!(read(&null), read(&absent), "{} {place}", object["kind"]);
        }
    }
    assert_eq!(kinds.len(), Kind::ALL.len(), "{kinds:?}");
}

#[test]
fn objects_have_every_modelled_field() {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for object in objects() {
        let head = Head::of(&object.clone().into(), None).expect("a head");
        let node = Node::from(object);
        let notes = Notes::default();
        typed::read(head.known().expect("a kind"), &node, &notes).expect("an object");
        for typed in notes.types.into_inner() {
            let notes::TypeRead {
                name,
                fields,
                there: set,
            } = typed;
            missing.entry(name).or_default().extend(fields);
            let set = fields
                .iter()
                .filter(|field| set.iter().any(|key| **field == key.as_str()));
            there.entry(name).or_default().extend(set);
        }
    }
    for (name, fields) in &mut missing {
        fields.retain(|field| !there.get(name).is_some_and(|there| there.contains(field)));
    }
    missing.retain(|_, fields| !fields.is_empty());
    assert!(missing.is_empty(), "every_field.yaml lacks {missing:?}");
}

#[test]
fn the_last_endpoint_of_a_service_goes() {
    // kube-controller-manager sends null instead of an empty list.
    let value = json!({
        "metadata": {"name": "app-x7k2p", "namespace": "shop", "generateName": "app-", "generation": 7,
            "creationTimestamp": "2026-11-22T10:00:00Z",
            "labels": {"kubernetes.io/service-name": "app",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "addressType": "IPv4", "endpoints": null, "ports": null,
    });
    let version = "discovery.k8s.io/v1";
    let decoded = decode_value(value, Kind::EndpointSlice, version).expect("a slice");
    let AnyObject::EndpointSlice(slice) = decoded.object else {
        panic!("not a slice")
    };
    assert!(slice.endpoints.is_empty() && slice.ports.is_empty());
}
