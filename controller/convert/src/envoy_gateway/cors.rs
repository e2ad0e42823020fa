//! `cors` becomes a CORS filter in each rule of the targeted HTTPRoutes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::TakenField;
use super::super::values::milliseconds;
use super::targets::{self, PolicyTarget};

const LISTS: [&str; 4] = [
    "allowOrigins",
    "allowMethods",
    "allowHeaders",
    "exposeHeaders",
];

pub(super) fn convert(
    draft: &mut Draft,
    id: &ObjectId,
    field: TakenField,
    targets: &[PolicyTarget],
) {
    let filter = match filter(field.value()) {
        Ok(filter) => filter,
        Err(reason) => {
            field.refuse(&reason, "correct the value");
            return;
        }
    };
    let (routes, replaced) = match routes(draft, id, targets) {
        Ok(found) => found,
        Err(reason) => {
            field.refuse(reason, "let the policy target HTTPRoutes in the input");
            return;
        }
    };
    for (route, section) in routes {
        let output = draft.change(&route, id);
        let is_added = output.is_some_and(|output| add(output, section.as_deref(), &filter));
        if !is_added {
            let reason = format!("{route} has no such rule, or already has a CORS filter");
            field.refuse(&reason, "add the filter to the route");
            return;
        }
    }
    let mut difference =
        "written into the rules of the routes in the input; add it to later routes".to_owned();
    if replaced > 0 {
        difference =
            format!("{difference}; left out of {replaced} routes with their own SecurityPolicy");
    }
    field.differ("HTTPRoute spec.rules.filters", &difference);
}

/// Routes, each with the name of a rule or, for all rules, `None`.
type RuleSet = BTreeSet<(ObjectId, Option<String>)>;

/// Returns the routes with the names of their rules, and the number of routes that are left out
/// because they have their own policies. A filter would open them to more origins.
fn routes(
    draft: &Draft,
    id: &ObjectId,
    targets: &[PolicyTarget],
) -> Result<(RuleSet, usize), &'static str> {
    let mut routes = BTreeSet::new();
    let mut replaced = 0;
    for target in targets.iter().filter(|target| target.is_supported) {
        // A listener's policy applies to an unknown part of the routes.
        let is_partial = target.section.is_some() && !target.is_route();
        let found = targets::routes_of(draft, target);
        let is_complete = found.iter().all(|it| it.kind == "HTTPRoute");
        if is_partial || !is_complete || found.is_empty() {
            return Err("CORS filters exist only in HTTPRoutes");
        }
        for route in found {
            if !target.is_route() && targets::is_replaced_for(draft, id, &route) {
                replaced += 1;
            } else {
                routes.insert((route, target.section.clone()));
            }
        }
    }
    if routes.is_empty() && replaced == 0 {
        return Err("the policy has no supported target");
    }
    Ok((routes, replaced))
}

fn filter(value: &Value) -> Result<Value, String> {
    let fields = value.as_object().ok_or("expected a mapping")?;
    let mut cors = Map::new();
    for (name, value) in fields {
        let value = match name.as_str() {
            name if LISTS.contains(&name) => list(name, value)?,
            "maxAge" => {
                let time = value.as_str().and_then(milliseconds);
                let seconds = time.map(|time| time / 1000).filter(|seconds| *seconds > 0);
                json!(seconds.ok_or("maxAge: expected a duration of at least 1s")?)
            }
            "allowCredentials" if value.is_boolean() => value.clone(),
            _ => return Err(format!("{name} has no counterpart")),
        };
        cors.insert(name.clone(), value);
    }
    Ok(json!({"type": "CORS", "cors": cors}))
}

fn list(name: &str, value: &Value) -> Result<Value, String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("{name}: expected a list"))?;
    for item in items {
        let item = item
            .as_str()
            .ok_or_else(|| format!("{name}: expected texts"))?;
        let host = item.split_once("://").map_or(item, |(_, host)| host);
        if name == "allowOrigins" && host.contains(":*") {
            return Err("allowOrigins: Sesame does not support any port".to_owned());
        }
    }
    Ok(value.clone())
}

/// Returns false if no rule was changed, or a rule already has a CORS filter.
fn add(route: &mut Value, section: Option<&str>, filter: &Value) -> bool {
    let Some(rules) = route
        .pointer_mut("/spec/rules")
        .and_then(Value::as_array_mut)
    else {
        return false;
    };
    let mut changed = false;
    for rule in rules {
        if section.is_some_and(|name| rule["name"] != *name) {
            continue;
        }
        let Some(rule) = rule.as_object_mut() else {
            return false;
        };
        let filters = rule.entry("filters").or_insert_with(|| json!([]));
        let Some(filters) = filters.as_array_mut() else {
            return false;
        };
        if filters.iter().any(|filter| filter["type"] == "CORS") {
            return false;
        }
        filters.insert(0, filter.clone());
        changed = true;
    }
    changed
}
