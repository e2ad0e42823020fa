//! Canary Ingresses become more rules and weights of the Ingress whose requests they take.

use serde_json::{Value, json};
use sesame_resolver::nginx_annotations::{CanaryCondition, CanaryReading};

use super::super::draft::Draft;
use super::super::fields::RemainingFields;
use super::super::routing::RuleDraft;
use super::super::values::put_list;
use super::super::verdicts::VerdictLog;
use super::index::{PathKey, key_in};
use super::{IngressInput, rules};

const TO: &str = "HTTPRoute rules";

/// Returns the rules for a path, with those for its canary.
pub(super) fn rules(
    draft: &Draft,
    input: &mut IngressInput,
    key: &PathKey,
    matched: &Value,
    backend: &Value,
) -> Vec<RuleDraft> {
    let rule = |matched: Value, backends: Vec<Value>| {
        let mut rule = RuleDraft {
            matches: vec![matched],
            ..RuleDraft::default()
        };
        put_list(&mut rule.fields, "backendRefs", backends);
        rule
    };
    let found = input.index.canary_paths.get(key);
    let found = found.and_then(|(id, value)| {
        let taken = backend_of(draft, input, value)?;
        Some((id, taken, input.index.canaries.get(id)?))
    });
    let Some((id, taken, choice)) = found else {
        return vec![rule(matched.clone(), vec![backend.clone()])];
    };
    let CanaryReading {
        conditions,
        weight,
        total,
        faults: _,
    } = choice;
    let mut rules = Vec::new();
    for condition in conditions {
        let CanaryCondition {
            name,
            value,
            is_expression,
            is_taken,
        } = condition;
        let kind = if *is_expression {
            "RegularExpression"
        } else {
            "Exact"
        };
        let header = json!({"type": kind, "name": name, "value": value});
        let mut narrowed = matched.clone();
        narrowed["headers"] = json!([header]);
        let backend = if *is_taken { &taken } else { backend };
        rules.push(rule(narrowed, vec![backend.clone()]));
    }
    let mut backends = vec![backend.clone()];
    if *weight > 0 {
        let mut taken = taken.clone();
        taken["weight"] = json!(weight);
        backends[0]["weight"] = json!(total - weight);
        backends.push(taken);
    }
    rules.push(rule(matched.clone(), backends));
    input.sources.insert(id.clone());
    rules
}

/// The verdict on the backend is in the rows of the canary.
fn backend_of(draft: &Draft, input: &IngressInput, value: &Value) -> Option<Value> {
    let object = json!({ "backend": value });
    let mut fields = RemainingFields::of_object(&object, &VerdictLog::default());
    rules::backend(draft, input, fields.take("backend")?)
}

/// Records the verdicts on a canary.
pub(super) fn record(draft: &Draft, input: &mut IngressInput, mut spec: RemainingFields) {
    let faults = input.index.canaries.get(&input.id).map(|it| &it.faults);
    for (key, field) in std::mem::take(&mut input.annotations) {
        let name = key.rsplit('/').next().unwrap_or_default();
        if let Some(why) = faults.and_then(|it| it.get(name)) {
            // The main Ingress keeps the requests.
            let field = field.protecting(false);
            field.refuse(why, "correct the value");
        } else if name == "ingress.class" || name == "canary" || name.starts_with("canary-") {
            field.carry(TO);
        } else {
            field.unneeded("ingress-nginx ignores it on canaries");
        }
    }
    spec.skip("ingressClassName", "the main Ingress has the same class");
    spec.skip("tls", "clients get the certificate of the main Ingress");
    spec.skip("defaultBackend", "ingress-nginx ignores it on canaries");
    for field in spec.list("rules") {
        let host = field.value()["host"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let mut rule = field.fields();
        rule.skip("host", "the main Ingress has the same host");
        for field in rule.section("http").list("paths") {
            let key = key_in(&input.id, &input.class, &host, field.value());
            let owner = input.index.canary_paths.get(&key).map(|(id, _)| id);
            if !input.index.main_paths.contains(&key) {
                field.unneeded("no other Ingress has the same host, path and pathType");
            } else if owner != Some(&input.id) {
                field.unneeded("an older canary has the same path");
            } else {
                let mut entry = field.fields();
                for name in ["path", "pathType"] {
                    entry.skip(name, "the main Ingress has the same path");
                }
                let backend = entry.take("backend");
                drop(backend.and_then(|field| rules::backend(draft, input, field)));
            }
        }
    }
}
