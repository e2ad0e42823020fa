//! Conditions of AuthorizationPolicies become authorization rules.
//!
//! Where a rule cannot match exactly, a denying rule matches more requests and a permitting rule
//! fewer, or the condition is refused.

use serde_json::{Map, Value};

use super::super::fields::{RemainingFields, TakenField};
use super::super::values::put;
use super::comparisons::when;
use super::patterns::{ReadPattern, host, method, path, patterns};
use super::sources::source;

pub(super) const TO: &str = "AccessPolicy authorization.rules";
pub(super) const MAX_VALUES: usize = 16;
const MAX_RULES: usize = 64;

/// The rules of one policy.
#[derive(Debug, Default)]
pub(super) struct PolicyRules {
    /// Rules without exceptions.
    pub(super) plain: Vec<Value>,
    /// Each rule with exceptions, after its exceptions.
    pub(super) limited: Vec<Vec<Value>>,
}

/// A conjunction of conditions, and its exceptions.
#[derive(Clone, Debug, Default)]
pub(super) struct Conjunction {
    pub(super) conditions: Map<String, Value>,
    pub(super) exceptions: Vec<Map<String, Value>>,
    /// True if no request meets it, because every request needs a token, or a condition is lost.
    is_void: bool,
    /// True if two lists of addresses must both match.
    clashes: bool,
}

/// Action and token issuers of the policy.
#[derive(Clone, Copy)]
pub(super) struct Reading<'r> {
    pub(super) is_deny: bool,
    pub(super) issuers: &'r [String],
}

type ReadSection = fn(&mut RemainingFields, Reading) -> Vec<Conjunction>;

/// Takes a list. An empty one is unset, as in Istio.
pub(super) fn take_list(fields: &mut RemainingFields, name: &str) -> Option<TakenField> {
    let field = fields.take(name)?;
    if field.value().as_array().is_some_and(Vec::is_empty) {
        field.unneeded("an empty list is unset");
        return None;
    }
    Some(field)
}

pub(super) fn rules(
    spec: &RemainingFields,
    list: Option<TakenField>,
    reading: Reading,
) -> PolicyRules {
    let mut output = PolicyRules::default();
    let is_deny = reading.is_deny;
    let mut limited = 0;
    for field in list.into_iter().flat_map(TakenField::items) {
        let is_rule = field.value().is_object();
        let mut fields = field.fields();
        if !is_rule {
            continue;
        }
        let mut all = vec![Conjunction::default()];
        let sections: [(&str, &str, ReadSection); 2] =
            [("from", "source", source), ("to", "operation", operation)];
        for (list, name, read) in sections {
            if let Some(field) = take_list(&mut fields, list) {
                all = both(&all, &either(field, name, (read, reading)));
            }
        }
        if let Some(field) = take_list(&mut fields, "when") {
            let is_list = field.value().is_array();
            for field in field.items() {
                all = both(&all, &when(field.fields(), reading));
            }
            if !is_list {
                all = both(&all, &[lost(reading)]);
            }
        }
        if all.len() > MAX_RULES {
            fields.refuse("from", "there are too many combinations", "split the rule");
            continue;
        }
        if all.iter().any(|it| it.clashes) {
            let reason = "a rule compares one list of addresses";
            fields.refuse("from", reason, "combine the lists");
        }
        // A denying rule matches the addresses of both lists.
        all.retain(|it| !it.is_void && (is_deny || !it.clashes));
        for it in all {
            limited += usize::from(!it.exceptions.is_empty());
            it.add_to(&mut output, is_deny);
        }
    }
    if limited > 1 && !is_deny {
        let difference = "stricter: requests that a rule excludes with not… are denied, even if another such rule permits \
            them";
        spec.note_difference("rules", TO, difference);
    }
    output
}

/// Returns the alternatives of `from` or `to`.
fn either(
    field: TakenField,
    name: &str,
    (read, reading): (ReadSection, Reading),
) -> Vec<Conjunction> {
    let mut either = Vec::new();
    for entry in field.items() {
        let mut entry = entry.fields();
        let mut section = entry.section(name);
        let has_conditions = section.names().iter().any(|it| section.has(it));
        if !has_conditions {
            section.refuse("", "it has no condition", "set one");
        }
        let found = read(&mut section, reading);
        // Unknown conditions are refused.
        let is_known = has_conditions && section.names().is_empty();
        either.extend(if is_known {
            found
        } else {
            both(&found, &[lost(reading)])
        });
    }
    if either.is_empty() {
        either.push(lost(reading));
    }
    either
}

impl Conjunction {
    pub(super) fn of(conditions: Map<String, Value>) -> Self {
        Self {
            conditions,
            ..Self::default()
        }
    }

    fn add_to(self, output: &mut PolicyRules, is_deny: bool) {
        let Self {
            mut conditions,
            exceptions,
            is_void: _,
            clashes: _,
        } = self;
        let [own, other] = if is_deny {
            ["Deny", "Allow"]
        } else {
            ["Allow", "Deny"]
        };
        put(&mut conditions, "action", Some(own));
        if exceptions.is_empty() {
            output.plain.push(conditions.into());
            return;
        }
        let exceptions = exceptions.into_iter().map(|exception| {
            // In a policy that denies, only this rule follows, so the exception needs no more.
            let mut rule = if is_deny {
                Map::new()
            } else {
                conditions.clone()
            };
            rule.extend(exception);
            put(&mut rule, "action", Some(other));
            Value::Object(rule)
        });
        let rules = exceptions.chain([conditions.clone().into()]).collect();
        output.limited.push(rules);
    }
}

/// Returns all combinations. Conditions on the same part apply together only if they are lists of
/// claims or headers; other parts were refused.
pub(super) fn both(first: &[Conjunction], second: &[Conjunction]) -> Vec<Conjunction> {
    let pairs = first
        .iter()
        .flat_map(|a| second.iter().map(move |b| (a, b)));
    let both = pairs.map(|(a, b)| {
        let mut all = a.clone();
        for (part, value) in &b.conditions {
            all.clashes |= part == "clients" && all.conditions.contains_key(part);
            match (all.conditions.get_mut(part), value) {
                (Some(Value::Array(known)), Value::Array(more)) => known.extend(more.clone()),
                _ => drop(all.conditions.insert(part.clone(), value.clone())),
            }
        }
        all.exceptions.extend(b.exceptions.iter().cloned());
        all.is_void |= b.is_void;
        all.clashes |= b.clashes;
        all
    });
    both.collect()
}

/// Adds a list of alternatives to conjunctions, in rules of at most 16 values.
pub(super) fn with(all: &[Conjunction], part: &str, values: &[Value]) -> Vec<Conjunction> {
    if values.is_empty() {
        return all.to_vec();
    }
    let parts = values.chunks(MAX_VALUES).map(|values| {
        let mut conditions = Map::new();
        conditions.insert(part.to_owned(), values.into());
        Conjunction::of(conditions)
    });
    both(all, &parts.collect::<Vec<_>>())
}

/// Adds exceptions for a list of values.
pub(super) fn without(all: &mut [Conjunction], part: &str, values: &[Value]) {
    for values in values.chunks(MAX_VALUES) {
        let mut exception = Map::new();
        exception.insert(part.to_owned(), values.into());
        for it in all.iter_mut() {
            it.exceptions.push(exception.clone());
        }
    }
}

/// Returns the conditions for a refused one: a permitting rule must not match more requests, even if
/// the caller accepts the loss.
pub(super) fn lost(reading: Reading) -> Conjunction {
    Conjunction {
        is_void: !reading.is_deny,
        ..Conjunction::default()
    }
}

/// Adds exceptions. One without conditions excludes all requests.
pub(super) fn except(all: &mut [Conjunction], exceptions: &[Conjunction]) {
    for it in all {
        it.is_void |= exceptions.iter().any(|it| it.conditions.is_empty());
        let own = exceptions.iter().map(|it| it.conditions.clone());
        it.exceptions.extend(own);
    }
}

/// Marks that no request meets the conditions.
pub(super) fn void(all: &mut [Conjunction]) {
    for it in all {
        it.is_void = true;
    }
}

pub(super) fn negative(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    format!("not{}{rest}", first.to_uppercase())
}

/// Returns the texts of a list, or `None` if the value has another type, which is refused.
pub(super) fn texts(field: TakenField) -> Option<(TakenField, Vec<String>)> {
    let list = field.value().as_array();
    let text = |it: &Value| it.as_str().map(str::to_owned);
    if let Some(texts) = list.and_then(|list| list.iter().map(text).collect()) {
        return Some((field, texts));
    }
    field.refuse("expected a list of texts", "correct the value");
    None
}

fn operation(fields: &mut RemainingFields, reading: Reading) -> Vec<Conjunction> {
    let mut all = vec![Conjunction::default()];
    for name in ["ports", "notPorts"] {
        if let Some(field) = take_list(fields, name) {
            let reason = "these are ports of Istio's gateway pods";
            field.refuse(reason, "write an AccessPolicy for a listener");
            all = both(&all, &[lost(reading)]);
        }
    }
    let parts: [(&str, ReadPattern); 3] = [("hosts", host), ("methods", method), ("paths", path)];
    for (part, read) in parts {
        let to = format!("{TO}.{part}");
        if let Some(field) = take_list(fields, part) {
            all = match patterns(field, &to, read, reading.is_deny) {
                Some(values) => with(&all, part, &values),
                None => both(&all, &[lost(reading)]),
            };
        }
        if let Some(field) = take_list(fields, &negative(part)) {
            match patterns(field, &to, read, !reading.is_deny) {
                Some(values) if values.is_empty() => void(&mut all),
                Some(values) => without(&mut all, part, &values),
                None => all = both(&all, &[lost(reading)]),
            }
        }
    }
    all
}
