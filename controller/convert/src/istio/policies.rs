//! AuthorizationPolicies and RequestAuthentications of gateway pods become AccessPolicies of
//! Gateways. Policies of other workloads stay with their sidecars.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sesame_kinds::api::GATEWAY_GROUP;

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::RemainingFields;
use super::super::values::{put, put_list};
use super::conditions::Reading;
use super::reach::{Reach, reach};
use super::{ANNOTATIONS, Mesh, access, conditions};

const MAX_RULES: usize = 16;
const SIDECARS: &str = "its workloads enforce it; keep it as it is";
const UNKNOWN: &str = "the input does not show whether it applies to the gateway's pods";

/// Policies of one Gateway.
#[derive(Default)]
pub(super) struct GatewayAccess {
    pub(super) providers: Vec<Value>,
    /// Policies that permit requests, combined.
    allow: Vec<Value>,
    has_allow: bool,
    allow_sources: BTreeSet<ObjectId>,
}

pub(super) fn convert(draft: &mut Draft, mesh: &mut Mesh) {
    let mut gateways: BTreeMap<ObjectId, GatewayAccess> = BTreeMap::new();
    for kind in ["RequestAuthentication", "AuthorizationPolicy"] {
        for (id, object) in mesh.of_kind(&format!("{kind}.security.istio.io")) {
            policy(draft, mesh, &mut gateways, (&id, object));
        }
    }
    for (id, object) in mesh.of_kind("EnvoyFilter.networking.istio.io") {
        extension(draft, mesh, &id, object);
    }
    for (id, object) in mesh.of_kind("WasmPlugin.extensions.istio.io") {
        extension(draft, mesh, &id, object);
    }
    for (gateway, access) in gateways {
        let GatewayAccess {
            providers,
            mut allow,
            has_allow,
            allow_sources,
        } = access;
        let mut spec = Map::new();
        if has_allow {
            if allow.is_empty() {
                // No rule permits anything.
                allow.push(json!({"action": "Deny", "paths": [{"value": "/"}]}));
            }
            spec.insert("authorization".to_owned(), json!({ "rules": allow }));
        }
        if !providers.is_empty() {
            spec.insert("jwt".to_owned(), json!({ "providers": providers }));
        }
        add(draft, &allow_sources, (&gateway.name, &gateway), spec);
    }
}

fn add(
    draft: &mut Draft,
    sources: &BTreeSet<ObjectId>,
    (name, gateway): (&str, &ObjectId),
    mut spec: Map<String, Value>,
) {
    if spec.is_empty() {
        return;
    }
    let target = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": gateway.name});
    put_list(&mut spec, "targetRefs", vec![target]);
    let mut metadata = Map::new();
    put(&mut metadata, "name", Some(name));
    put(&mut metadata, "namespace", Some(gateway.namespace.as_str()));
    draft.add_from(
        sources,
        sesame_object("AccessPolicy", metadata, spec.into()),
    );
}

fn policy(
    draft: &mut Draft,
    mesh: &mut Mesh,
    gateways: &mut BTreeMap<ObjectId, GatewayAccess>,
    (id, object): (&ObjectId, &Value),
) {
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let found = match reach(mesh, id, object, &object["spec"]["selector"]) {
        Reach::Sidecars => {
            log_whole(&mut spec, SIDECARS);
            return;
        }
        Reach::Unknown => {
            for name in spec.names() {
                spec.skip(&name, "see selector");
            }
            let remedy = "add the gateway's Deployment to the input, or accept the loss";
            spec.refuse("selector", UNKNOWN, remedy);
            // It might protect every Gateway.
            let all = mesh.selectors.iter();
            let all = all.map(|(_, class)| ObjectId::new("Gateway", "default", class));
            draft.entry(id).protects.extend(all);
            return;
        }
        Reach::Gateways(found) => found,
    };
    draft.entry(id).protects.extend(found.iter().cloned());
    for name in ["selector", "targetRefs", "targetRef"] {
        let Some(field) = spec.take(name) else {
            continue;
        };
        let mut fields = field.value().as_object().into_iter().flatten();
        if name == "selector" && fields.any(|(name, _)| name != "matchLabels") {
            field.refuse("the selector has an unknown field", "use matchLabels");
        } else {
            field.differ(
                "AccessPolicy targetRefs",
                "the Gateway that replaces the pods",
            );
        }
    }
    if id.kind.starts_with("Request") {
        let providers = access::providers(&mut spec);
        for gateway in found {
            let access = gateways.entry(gateway).or_default();
            access.providers.extend(providers.clone());
            access.allow_sources.insert(id.clone());
        }
        return;
    }
    authorization(draft, mesh, id, &mut spec, (gateways, found));
}

/// Converts the rules of an AuthorizationPolicy.
fn authorization(
    draft: &mut Draft,
    mesh: &mut Mesh,
    id: &ObjectId,
    spec: &mut RemainingFields,
    (gateways, found): (&mut BTreeMap<ObjectId, GatewayAccess>, Vec<ObjectId>),
) {
    let action = spec.take("action");
    let is_deny = match action.as_ref().map_or("ALLOW", |it| it.as_str()) {
        "AUDIT" => {
            if let Some(field) = action {
                field.unneeded("it only logs requests");
            }
            return log_whole(spec, "it only logs requests");
        }
        "ALLOW" => false,
        "DENY" => true,
        _ => {
            let reason = "the mesh's configuration defines the provider";
            let remedy = "write an AccessPolicy with extAuth, then accept the loss";
            if let Some(field) = action {
                field.refuse(reason, remedy);
            }
            return log_whole(spec, "see action");
        }
    };
    spec.skip("provider", "only CUSTOM uses it");
    drop(action.map(|it| it.carry("AccessPolicy authorization.rules.action")));
    let mut list = spec.take("rules");
    let value = list.as_ref().map(|it| it.value().clone());
    for gateway in found {
        if !is_deny || value.is_some() {
            refuse_streams(mesh, id, &gateway);
        }
        let access = gateways.entry(gateway.clone()).or_default();
        let issuers = access.providers.iter();
        let issuers = issuers.filter_map(|it| it["issuer"].as_str().map(str::to_owned));
        let issuers: Vec<String> = issuers.collect();
        let reading = Reading {
            is_deny,
            issuers: &issuers,
        };
        // The rules mean something else for each Gateway.
        let again = || Some(spec.taken("rules", value.clone()?));
        let rules = conditions::rules(spec, list.take().or_else(again), reading);
        let mut count = rules.plain.len() + 2 * rules.limited.len();
        if is_deny {
            deny(draft, id, &gateway, access, &rules);
        } else {
            access.has_allow = true;
            access.allow_sources.insert(id.clone());
            access.allow.splice(0..0, rules.plain.iter().cloned());
            access.allow.extend(rules.limited.iter().flatten().cloned());
            count = access.allow.len();
        }
        if count > MAX_RULES {
            let reason = format!("an AccessPolicy has at most {MAX_RULES} rules");
            spec.refuse("rules", &reason, "combine rules");
        }
    }
}

/// Refuses routes of connections, because they would lack the rules.
fn refuse_streams(mesh: &mut Mesh, policy: &ObjectId, gateway: &ObjectId) {
    let own = mesh.streams.get(gateway).cloned().unwrap_or_default();
    for (service, list) in own {
        let reason = format!("{policy} applies to its connections, but rules apply to HTTP only");
        let remedy = "write an AccessPolicy with ipFilter for the Gateway, then accept the loss";
        let log = mesh.log(&service);
        log.refuse(&format!("spec.{list}"), &reason, remedy);
    }
}

/// Each rule with exceptions gets its own policy, because the first matching rule decides.
fn deny(
    draft: &mut Draft,
    id: &ObjectId,
    gateway: &ObjectId,
    access: &GatewayAccess,
    rules: &conditions::PolicyRules,
) {
    let plain = Some(&rules.plain).filter(|it| !it.is_empty());
    let sources = [id.clone()].into();
    for (index, rules) in plain.into_iter().chain(&rules.limited).enumerate() {
        let mut spec = Map::new();
        let uses_claims = rules.iter().any(|it| !it["claims"].is_null());
        if uses_claims {
            spec.insert("jwt".to_owned(), json!({ "providers": access.providers }));
        }
        let part = json!({"defaultAction": "Allow", "rules": rules});
        spec.insert("authorization".to_owned(), part);
        let name = match index {
            0 => format!("{}-{}", id.namespace, id.name),
            index => format!("{}-{}-{}", id.namespace, id.name, index + 1),
        };
        let ObjectId {
            name: gateway_name, ..
        } = gateway;
        let name = format!("{gateway_name}-{name}");
        add(draft, &sources, (&name, gateway), spec);
    }
}

/// Records the same reason for all fields.
fn log_whole(spec: &mut RemainingFields, reason: &str) {
    let names = spec.names();
    if names.is_empty() {
        spec.taken("", Value::Bool(true)).unneeded(reason);
    }
    for name in names {
        spec.skip(&name, reason);
    }
}

/// Envoy's configuration and code may contain any protection.
fn extension(draft: &mut Draft, mesh: &mut Mesh, id: &ObjectId, object: &Value) {
    let log = mesh.log(id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let selectors = ["selector", "workloadSelector"];
    let selector = selectors
        .into_iter()
        .find(|it| spec.has(it))
        .unwrap_or("selector");
    let gateways = match reach(mesh, id, object, &object["spec"][selector]) {
        Reach::Sidecars => {
            return log_whole(&mut spec, "it changes sidecars, not the gateway");
        }
        Reach::Gateways(found) => found,
        Reach::Unknown => {
            let all = mesh.selectors.iter();
            all.map(|(_, class)| ObjectId::new("Gateway", "default", class))
                .collect()
        }
    };
    log_whole(&mut spec, "see the object");
    drop(spec);
    let reason = "Sesame runs no foreign code and no parts of Envoy's configuration";
    let remedy = "express it with filters and policies, then accept the loss";
    root.refuse("spec", reason, remedy);
    draft.entry(id).protects.extend(gateways);
}
