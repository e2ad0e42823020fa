//! `when` of AuthorizationPolicies: conditions on claims, headers and addresses.

use serde_json::{Map, Value, json};

use super::super::fields::{RemainingFields, TakenField};
use super::conditions::{
    Conjunction, MAX_VALUES, Reading, TO, both, except, lost, take_list, with,
};
use super::patterns::{method, patterns};
use super::sources::{ADD_ISSUER, NO_ISSUER, networks, principals};

/// Part of a request that a condition compares.
enum Compared {
    Principal,
    Address,
    /// Name of a claim.
    Claim(String),
    /// Name of a header.
    Header(String),
}

/// Reads `[a][b]`. A name with a dot would be read as several levels.
fn claim_name(text: &str) -> Option<String> {
    let levels = text.strip_prefix('[')?.strip_suffix(']')?;
    let name = levels.replace("][", ".");
    let is_plain = !levels.is_empty() && !levels.contains('.') && !name.contains(['[', ']']);
    is_plain.then_some(name)
}

/// Returns `None` if Sesame cannot compare it, which is refused.
fn compared(key: TakenField, reading: Reading) -> Option<Compared> {
    let name = key.as_str();
    let claim = name.strip_prefix("request.auth.claims");
    let header = name.strip_prefix("request.headers[");
    let found = match name {
        "request.auth.principal" => Some(Compared::Principal),
        "request.auth.audiences" => Some(Compared::Claim("aud".to_owned())),
        "request.auth.presenter" => Some(Compared::Claim("azp".to_owned())),
        "source.ip" | "remote.ip" => Some(Compared::Address),
        _ => match (claim, header) {
            (Some(levels), _) => claim_name(levels).map(Compared::Claim),
            (_, Some(header)) => {
                let header = header.trim_end_matches(']');
                Some(Compared::Header(header.to_owned()))
            }
            _ => None,
        },
    };
    let needs_token = matches!(found, Some(Compared::Principal | Compared::Claim(_)));
    match &found {
        Some(_) if needs_token && reading.issuers.is_empty() => {
            key.refuse(NO_ISSUER, ADD_ISSUER);
            None
        }
        Some(_) => {
            key.carry(TO);
            found
        }
        None => {
            let reason = "Sesame cannot compare it";
            key.refuse(reason, "compare claims without dots, headers or addresses");
            None
        }
    }
}

/// Reads `key`, `values` and `notValues`.
pub(super) fn when(mut fields: RemainingFields, reading: Reading) -> Vec<Conjunction> {
    let mut all = vec![Conjunction::default()];
    if !fields.has("key") {
        fields.refuse("key", "it is not set", "set it");
    }
    let compared = fields.take("key").and_then(|key| compared(key, reading));
    let Some(compared) = compared else {
        for name in fields.names() {
            fields.skip(&name, "see key");
        }
        return vec![lost(reading)];
    };
    let lists = ["values", "notValues"].map(|name| (name, take_list(&mut fields, name)));
    if lists.iter().all(|(_, field)| field.is_none()) {
        fields.refuse("values", "it is not set", "list the values");
        return vec![lost(reading)];
    }
    for (name, field) in lists {
        let Some(field) = field else { continue };
        match alternatives(&fields, (field, name), &compared, reading) {
            Some(either) if name == "values" => all = both(&all, &either),
            Some(exceptions) => except(&mut all, &exceptions),
            None => all = both(&all, &[lost(reading)]),
        }
    }
    all
}

/// Returns an alternative for each 16 values, or `None` if one was refused.
fn alternatives(
    fields: &RemainingFields,
    (field, list): (TakenField, &str),
    compared: &Compared,
    reading: Reading,
) -> Option<Vec<Conjunction>> {
    let (part, name) = match compared {
        Compared::Principal => return principals(field, reading),
        Compared::Address => {
            let values = networks(field, &format!("{TO}.clients"))?;
            return Some(with(&[Conjunction::default()], "clients", &values));
        }
        Compared::Claim(name) => ("claims", name),
        Compared::Header(name) => ("headers", name),
    };
    let values = patterns(field, &format!("{TO}.{part}"), method, reading.is_deny)?;
    if values.is_empty() {
        fields.refuse(list, "a rule compares values", "list the values");
        return None;
    }
    let parts = values.chunks(MAX_VALUES).map(|values| {
        let mut conditions = Map::new();
        let condition: Value = json!([{"name": name, "values": values}]);
        conditions.insert(part.to_owned(), condition);
        Conjunction::of(conditions)
    });
    Some(parts.collect())
}
