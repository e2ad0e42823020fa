//! Authorization rules. Lists of networks become an `ipFilter`, because that is easier to read.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list, put_map};

const MAX_RULES: usize = 16;
const MAX_NETWORKS: usize = 128;
/// Maximum number of networks in one of Sesame's rules.
const MAX_CLIENTS: usize = 16;

/// The other checks of the policy.
pub(super) struct OtherChecks<'d> {
    /// The number of token issuers. Sesame's rules accept claims from all of them.
    pub(super) providers: usize,
    /// Headers that checks set, in lower case. Envoy Gateway evaluates rules after these checks,
    /// and Sesame before them.
    pub(super) headers: &'d BTreeSet<String>,
    /// True if a check might set any header.
    pub(super) sets_any_header: bool,
}

pub(super) fn convert(
    field: Option<TakenField>,
    checks: &OtherChecks<'_>,
    output: &mut Map<String, Value>,
) {
    let Some(field) = field else {
        return;
    };
    if let Some((list, networks)) = as_networks(field.value()) {
        let mut filter = Map::new();
        put_list(&mut filter, list, networks);
        let to = format!("AccessPolicy ipFilter.{list}");
        if field.value().to_string().contains("\"name\"") {
            field.differ(&to, "the rules' names are lost");
        } else {
            field.carry(&to);
        }
        put_map(output, "ipFilter", filter);
        return;
    }
    let mut fields = field.fields();
    let to = "AccessPolicy authorization.defaultAction";
    let action = fields.text("defaultAction", to);
    let mut rules = Vec::new();
    for field in fields.list("rules") {
        let converted = rule(field, checks);
        rules.extend(converted);
    }
    if rules.len() > MAX_RULES {
        let reason = format!("Sesame supports at most {MAX_RULES} rules");
        fields.refuse("rules", &reason, "combine rules");
    } else if rules.is_empty() && action.as_deref() != Some("Allow") {
        let reason = "Sesame requires at least one rule";
        fields.refuse("rules", reason, "add a rule, or remove the route");
    } else if !rules.is_empty() {
        let mut part = Map::new();
        put(&mut part, "defaultAction", action);
        put_list(&mut part, "rules", rules);
        put_map(output, "authorization", part);
    }
}

/// Returns `allow` or `deny` with the networks if all rules name only networks, and have one action
/// that is the opposite of the default.
fn as_networks(value: &Value) -> Option<(&'static str, Vec<String>)> {
    let fields = value.as_object()?;
    let default = fields.get("defaultAction").and_then(Value::as_str);
    let (list, expected) = match default.unwrap_or("Deny") {
        "Deny" => ("allow", "Allow"),
        "Allow" => ("deny", "Deny"),
        _ => return None,
    };
    let is_known = |name: &String| matches!(name.as_str(), "defaultAction" | "rules");
    let mut networks = Vec::new();
    for rule in fields.get("rules")?.as_array()? {
        let rule = rule.as_object()?;
        let is_plain = rule
            .keys()
            .all(|name| matches!(name.as_str(), "name" | "action" | "principal"));
        let principal = rule.get("principal")?.as_object()?;
        if !is_plain || principal.len() != 1 || rule.get("action")?.as_str()? != expected {
            return None;
        }
        for network in principal.get("clientCIDRs")?.as_array()? {
            networks.push(network.as_str()?.to_owned());
        }
    }
    let fits = (1..=MAX_NETWORKS).contains(&networks.len());
    (fits && fields.keys().all(is_known)).then_some((list, networks))
}

/// Returns several rules if the rule has many networks.
fn rule(field: TakenField, checks: &OtherChecks<'_>) -> Vec<Value> {
    let given = field.value().as_object();
    let has_conditions = given.is_some_and(|it| it.len() > 1);
    let principal = field.value()["principal"].as_object();
    let has_principal = principal.is_some_and(|it| !it.is_empty());
    let mut fields = field.fields();
    let to = |name: &str| format!("AccessPolicy authorization.rules.{name}");
    fields.skip("name", "Sesame's rules have no names");
    let mut output = Map::new();
    put(&mut output, "action", fields.text("action", &to("action")));
    let mut operation = fields.section("operation");
    let methods = operation.texts("methods", &to("methods"));
    put_list(&mut output, "methods", methods);
    let mut principal = fields.section("principal");
    let networks = principal.texts("clientCIDRs", &to("clients"));
    let headers: Vec<Value> = principal
        .list("headers")
        .into_iter()
        .filter_map(|header| matched_header(header, checks))
        .collect();
    put_list(&mut output, "headers", headers);
    if let Some(field) = principal.take("jwt") {
        put_list(
            &mut output,
            "claims",
            claims(field.fields(), checks.providers),
        );
    }
    if networks.is_empty() {
        // Never open access because the only condition, or every condition on clients, was lost.
        let names_clients = output.contains_key("headers") || output.contains_key("claims");
        let is_open = has_conditions && output.len() == 1 || has_principal && !names_clients;
        let is_lost = is_open && output.get("action").is_some_and(|action| action == "Allow");
        return if is_lost {
            Vec::new()
        } else {
            vec![Value::Object(output)]
        };
    }
    let parts = networks.chunks(MAX_CLIENTS).map(|part| {
        let mut rule = output.clone();
        put_list(&mut rule, "clients", part.to_vec());
        Value::Object(rule)
    });
    parts.collect()
}

fn matched_header(field: TakenField, checks: &OtherChecks<'_>) -> Option<Value> {
    let name = field.value()["name"].as_str().unwrap_or_default();
    if checks.sets_any_header || checks.headers.contains(&name.to_ascii_lowercase()) {
        let reason = "Sesame evaluates rules before other checks set headers";
        field.refuse(reason, "compare claims instead");
        return None;
    }
    let given = field.value().as_object();
    let is_known = |name: &String| matches!(name.as_str(), "name" | "values");
    if !given.is_some_and(|it| it.keys().all(is_known)) {
        let reason = "Sesame's rules compare headers only with a list of values";
        field.refuse(reason, "list the values");
        return None;
    }
    Some(field.carry("AccessPolicy authorization.rules.headers"))
}

fn claims(mut fields: RemainingFields, providers: usize) -> Vec<Value> {
    if let Some(field) = fields.take("provider") {
        if providers == 1 {
            field.unneeded("the policy has only one provider");
        } else {
            let reason = "Sesame's rules accept claims from all providers of the policy";
            field.refuse(reason, "split the policy by provider");
        }
    }
    let to = "AccessPolicy authorization.rules.claims";
    let claims = fields.list("claims").into_iter().map(|field| {
        let mut fields = field.fields();
        let mut claim = Map::new();
        if let Some(field) = fields.take("valueType") {
            field.differ(to, "a text or a list that contains the text matches");
        }
        put(&mut claim, "name", fields.text("name", to));
        put_list(&mut claim, "values", fields.texts("values", to));
        Value::Object(claim)
    });
    let claims = claims.collect();
    if let Some(field) = fields.take("scopes") {
        let reason = "Sesame does not split the scope claim";
        field.refuse(reason, "let the issuer add a list claim, and compare that");
    }
    claims
}
