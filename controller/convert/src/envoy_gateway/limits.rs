//! Rate limits.

use serde_json::{Map, Value, json};

use std::collections::BTreeSet;

use super::super::draft::Draft;
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list};

const MAX_LIMITS: usize = 8;
const MAX_KEYS: usize = 4;
const TO: &str = "TrafficPolicy rateLimits";

/// `is_shared` is true if all targets are Gateways or ListenerSets.
pub(super) fn convert(draft: &Draft, mut fields: RemainingFields, is_shared: bool) -> Vec<Value> {
    let late = &draft.index().check_headers;
    fields.skip("type", "the other fields determine the type");
    if let Some(field) = fields.take("global") {
        let reason = "Sesame does not include a rate limit service; consider `scope: Fleet`";
        field.refuse(
            reason,
            "use local limits: each port of each host has its own",
        );
    }
    let mut local = fields.section("local");
    let rules = local.list("rules");
    if rules.len() > 1 {
        let difference = "stricter: a request counts against all limits that match it";
        local.note_difference("rules", TO, difference);
    }
    if !rules.is_empty() {
        let difference = "stricter: requests count before credentials are checked";
        local.note_difference("rules", TO, difference);
    }
    if rules.len() > MAX_LIMITS {
        let reason = format!("Sesame supports at most {MAX_LIMITS} limits per policy");
        local.refuse("rules", &reason, "split the policy");
    }
    let limits = rules.into_iter().enumerate().filter_map(|(index, field)| {
        let name = format!("limit-{}", index + 1);
        rule(field, name, is_shared, late)
    });
    limits.take(MAX_LIMITS).collect()
}

/// A limit without its condition would limit too many requests, so both are refused.
fn rule(
    field: TakenField,
    name: String,
    is_shared: bool,
    late: &BTreeSet<String>,
) -> Option<Value> {
    let mut fields = field.fields();
    let mut output = Map::new();
    put(&mut output, "name", Some(name));
    let keys = keys(&mut fields, late)?;
    if let Some(field) = fields.take("shared") {
        let shared = field.value() == &Value::Bool(true);
        if shared == is_shared {
            field.carry(TO);
        } else {
            field.differ(
                TO,
                "Sesame's limits are shared by all routes of each target",
            );
        }
    } else if is_shared && keys.is_empty() {
        let difference = "stricter: the Gateway's routes share the limit";
        fields.note_difference("shared", TO, difference);
    }
    put_list(&mut output, "keys", keys);
    let mut limit = fields.section("limit");
    let (Some(requests), Some(unit)) = (limit.take("requests"), limit.take("unit")) else {
        fields.refuse("limit", "expected requests and unit", "set both");
        return None;
    };
    let number = requests.value().as_i64();
    let number = number.filter(|number| (1..=i64::from(i32::MAX)).contains(number));
    let Some(number) = number else {
        let reason = "Sesame's limits permit at least one request";
        requests.refuse(reason, "use a positive number");
        return None;
    };
    requests.carry(TO);
    put(&mut output, "requests", Some(number));
    if !["Second", "Minute", "Hour", "Day"].contains(&unit.as_str()) {
        unit.refuse("Sesame's periods are Second to Day", "use a shorter period");
        return None;
    }
    output.insert("per".to_owned(), unit.carry(TO));
    Some(Value::Object(output))
}

/// Returns `None` if a condition cannot be converted.
fn keys(fields: &mut RemainingFields, late: &BTreeSet<String>) -> Option<Vec<Value>> {
    let mut keys = Vec::new();
    let mut is_complete = true;
    for field in fields.list("clientSelectors") {
        let mut selector = field.fields();
        for field in selector.list("headers") {
            let name = field.value()["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let expected = json!({"name": name, "type": "Distinct"});
            let is_plain = *field.value() == expected
                || field.value() == &json!({"name": name, "type": "Distinct", "invert": false});
            if late.contains(&name.to_ascii_lowercase()) {
                let reason = "Sesame counts requests before a check sets this header";
                field.refuse(reason, "limit by client address");
                is_complete = false;
                continue;
            }
            is_complete &= close(field, is_plain);
            keys.push(json!({"type": "Header", "name": name}));
        }
        if let Some(field) = selector.take("sourceCIDR") {
            let kind = field.value()["type"].as_str() == Some("Distinct");
            let network = field.value()["value"].as_str().unwrap_or_default();
            let is_all = ["0.0.0.0/0", "::/0"].contains(&network);
            is_complete &= close(field, kind && is_all);
            keys.push(json!({"type": "ClientAddress"}));
        }
        for name in ["methods", "path"] {
            if let Some(field) = selector.take(name) {
                is_complete &= close(field, false);
            }
        }
    }
    if keys.len() > MAX_KEYS {
        let reason = format!("Sesame supports at most {MAX_KEYS} keys per limit");
        fields.refuse("clientSelectors", &reason, "remove selectors");
    }
    is_complete.then_some(keys)
}

fn close(field: TakenField, is_distinct: bool) -> bool {
    if is_distinct {
        field.carry("TrafficPolicy rateLimits.keys");
    } else {
        let reason = "Sesame limits each value separately, or all requests, but not selected ones";
        field.refuse(reason, "use type Distinct, or a route for these requests");
    }
    is_distinct
}
