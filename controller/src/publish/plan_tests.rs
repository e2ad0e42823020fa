//! Tests plans by applying them to published objects in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Backend, Endpoint, EndpointSet, Route, RouteTable, Snapshot, VirtualHost,
};

use sesame_proto::shard::Splitter;

use super::desired::{DesiredPublication, DesiredPublications};
use super::observed::{PublishedObject, PublishedObjects};
use super::plan::{GatewayPlan, ObjectWrite, plan};
use super::publication::Publication;
use super::signing::Seal;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::Part;
use sesame_resolver::ResolvedGateway;

fn name() -> NamespacedName {
    NamespacedName::new("ns", "edge")
}

fn publication(service: &str, address: &str, key: &str) -> Arc<Publication> {
    let backend = format!("Service/ns/{service}/80");
    let resolved = ResolvedGateway {
        gateway: name(),
        snapshot: Snapshot {
            gateway: "Gateway/ns/edge".to_owned(),
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "*".to_owned(),
                    routes: vec![Route {
                        name: format!("to {service}"),
                        ..Route::default()
                    }],
                    ..VirtualHost::default()
                }],
            }],
            backends: vec![Backend {
                name: backend.clone(),
                endpoints: backend.clone(),
                ..Backend::default()
            }],
            endpoints: vec![EndpointSet {
                name: backend,
                endpoints: vec![Endpoint {
                    address: address.to_owned(),
                    port: 80,
                    ..Endpoint::default()
                }],
                ..EndpointSet::default()
            }],
            ..Snapshot::default()
        },
        keys: vec![KeyPair {
            name: "Secret/ns/cert".to_owned(),
            certificate_chain: b"public".to_vec(),
            private_key: key.as_bytes().to_vec(),
            ..KeyPair::default()
        }],
    };
    let publication = Publication::new(resolved, "default", &mut Splitter::default());
    Arc::new(publication.expect("small enough"))
}

fn desired(publication: &Arc<Publication>) -> DesiredPublications {
    BTreeMap::from([(name(), DesiredPublication::Publish(Arc::clone(publication)))])
}

fn apply(published: &mut PublishedObjects, plan: &GatewayPlan, write: &ObjectWrite) {
    match write {
        ObjectWrite::Create(object) | ObjectWrite::Replace(object) => {
            let owner = plan.owner.as_ref().expect("an owner");
            published.put(
                &object.name,
                PublishedObject::from_write(object, owner, 1, Seal::None),
            );
        }
        ObjectWrite::Delete { kind, name } => {
            published.remove(kind, name, u64::MAX);
        }
    }
}

fn carry_out(published: &mut PublishedObjects, desired: &DesiredPublications) {
    for plan in plan(published, desired) {
        for write in plan.steps.iter().flatten() {
            apply(published, &plan, write);
        }
    }
}

/// Formats each write as `step verb part`.
fn describe(plans: &[GatewayPlan]) -> Vec<String> {
    let mut lines = Vec::new();
    for plan in plans {
        for (step, writes) in plan.steps.iter().enumerate() {
            for write in writes {
                lines.push(match write {
                    ObjectWrite::Create(object) => {
                        format!("{step} create {}", object.part.as_str())
                    }
                    ObjectWrite::Replace(object) => {
                        format!("{step} replace {}", object.part.as_str())
                    }
                    ObjectWrite::Delete { name, .. } => {
                        let part = name.rsplit('.').next().unwrap_or_default();
                        let part = part.split('-').next().unwrap_or_default();
                        format!("{step} delete {part}")
                    }
                });
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn published_state_needs_no_writes() {
    let mut published = PublishedObjects::default();
    let wanted = desired(&publication("a", "10.0.0.1", "one"));
    let first = describe(&plan(&published, &wanted));
    assert_eq!(
        first,
        [
            "0 create config",
            "0 create config",
            "0 create endpoints",
            "0 create keys",
            "1 create manifest",
        ]
    );
    carry_out(&mut published, &wanted);
    assert_eq!(plan(&published, &wanted), []);
}

#[test]
fn endpoint_is_one_write_and_key_precedes_manifest() {
    let mut published = PublishedObjects::default();
    carry_out(
        &mut published,
        &desired(&publication("a", "10.0.0.1", "one")),
    );
    let moved = desired(&publication("a", "10.0.0.2", "one"));
    assert_eq!(describe(&plan(&published, &moved)), ["0 replace endpoints"]);
    carry_out(&mut published, &moved);
    let rotated = desired(&publication("a", "10.0.0.2", "two"));
    assert_eq!(describe(&plan(&published, &rotated)), ["0 replace keys"]);
}

#[test]
fn readers_of_either_manifest_find_all_objects() {
    let mut published = PublishedObjects::default();
    carry_out(
        &mut published,
        &desired(&publication("a", "10.0.0.1", "one")),
    );
    let next = desired(&publication("b", "10.0.0.2", "one"));
    let plans = plan(&published, &next);
    let [change] = plans.as_slice() else {
        panic!("one plan: {plans:?}");
    };
    let endpoints = |step: usize| {
        let writes = &change.steps[step];
        let object = writes.iter().find_map(|write| match write {
            ObjectWrite::Replace(object) if object.part == Part::Endpoints => Some(object),
            _ => None,
        });
        object.expect("endpoints").bytes.len()
    };
    assert_eq!(change.steps.len(), 3, "{change:?}");
    assert!(
        endpoints(0) > endpoints(2),
        "old and new endpoints first, then only new ones"
    );
    let manifest = &change.steps[1];
    assert!(
        matches!(manifest.as_slice(), [ObjectWrite::Replace(object)] if object.part == Part::Manifest)
    );
    assert!(
        !change.steps[2]
            .iter()
            .any(|write| matches!(write, ObjectWrite::Delete { .. }))
    );

    // The next leader completes an interrupted plan.
    let mut whole = published.clone();
    carry_out(&mut whole, &next);
    let all: Vec<&ObjectWrite> = change.steps.iter().flatten().collect();
    for done in 0..all.len() {
        let mut state = published.clone();
        for write in &all[..done] {
            apply(&mut state, change, write);
        }
        carry_out(&mut state, &next);
        assert_eq!(plan(&state, &next), [], "after {done} writes");
    }
    // The third revision reuses the first revision's shards.
    let third = describe(&plan(
        &whole,
        &desired(&publication("c", "10.0.0.3", "one")),
    ));
    assert!(third.contains(&"2 delete config".to_owned()), "{third:?}");
}

#[test]
fn only_gateways_known_not_ours_are_withdrawn() {
    let mut published = PublishedObjects::default();
    carry_out(
        &mut published,
        &desired(&publication("a", "10.0.0.1", "one")),
    );
    let kept = BTreeMap::from([(name(), DesiredPublication::Retain)]);
    assert_eq!(plan(&published, &kept), []);
    let withdrawn = describe(&plan(&published, &BTreeMap::new()));
    assert_eq!(withdrawn[0], "0 delete manifest");
    assert_eq!(withdrawn.len(), 5);
    carry_out(&mut published, &BTreeMap::new());
    assert_eq!(published, PublishedObjects::default());
}
