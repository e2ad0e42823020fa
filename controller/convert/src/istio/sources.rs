//! Sources of requests in AuthorizationPolicies: addresses and tokens.

use serde_json::{Map, Value, json};

use super::super::fields::{RemainingFields, TakenField};
use super::super::values::network;
use super::conditions::{
    Conjunction, Reading, TO, both, except, lost, negative, take_list, texts, void, with, without,
};

pub(super) const NO_ISSUER: &str = "no RequestAuthentication of the Gateway names an issuer";
pub(super) const ADD_ISSUER: &str = "add it to the input";
const IDENTITY: &str = "Sesame knows no identities of the mesh";
const ADDRESS: &str = "the client's address, as spec.edge.clientAddress determines it";

pub(super) fn source(fields: &mut RemainingFields, reading: Reading) -> Vec<Conjunction> {
    let mut all = vec![Conjunction::default()];
    let mut is_lost = false;
    for name in ["principals", "namespaces", "serviceAccounts"] {
        for name in [name.to_owned(), negative(name)] {
            if let Some(field) = take_list(fields, &name) {
                field.refuse(IDENTITY, "use client certificates or tokens");
                is_lost = true;
            }
        }
    }
    let names = ["ipBlocks", "remoteIpBlocks"];
    for name in names {
        let to = format!("{TO}.clients");
        if let Some(field) = take_list(fields, name) {
            match networks(field, &to) {
                Some(values) => all = with(&all, "clients", &values),
                None => is_lost = true,
            }
        }
        if let Some(field) = take_list(fields, &negative(name)) {
            match networks(field, &to) {
                Some(values) => without(&mut all, "clients", &values),
                None => is_lost = true,
            }
        }
    }
    if let Some(field) = take_list(fields, "requestPrincipals") {
        match principals(field, reading) {
            Some(either) => all = both(&all, &either),
            None => is_lost = true,
        }
    }
    if let Some(field) = take_list(fields, "notRequestPrincipals") {
        if field.value() == &json!(["*"]) && !reading.issuers.is_empty() {
            field.differ(
                "AccessPolicy jwt",
                "requests without a token always get 401",
            );
            void(&mut all);
        } else {
            match principals(field, reading) {
                Some(exceptions) => except(&mut all, &exceptions),
                None => is_lost = true,
            }
        }
    }
    if is_lost {
        both(&all, &[lost(reading)])
    } else {
        all
    }
}

/// Returns `None` if they were refused.
pub(super) fn networks(field: TakenField, to: &str) -> Option<Vec<Value>> {
    let (field, list) = texts(field)?;
    field.differ(to, ADDRESS);
    Some(list.iter().map(|it| json!(network(it))).collect())
}

/// Reads `issuer/subject`. Every request has a token of one of the Gateway's issuers, if there are
/// any. Returns `None` if one was refused.
pub(super) fn principals(field: TakenField, reading: Reading) -> Option<Vec<Conjunction>> {
    let (field, list) = texts(field)?;
    if reading.issuers.is_empty() {
        field.refuse(NO_ISSUER, ADD_ISSUER);
        return None;
    }
    let mut all = Vec::new();
    for value in list.iter().map(String::as_str) {
        let known = reading.issuers.iter();
        let mut known = known.filter_map(|it| Some((it, value.strip_prefix(it.as_str())?)));
        let claim = |name: &str, value: &str| json!({"name": name, "values": [value]});
        let claims = match (value, known.next()) {
            ("*", _) => {
                all.push(Conjunction::default());
                continue;
            }
            (_, Some((issuer, "/*"))) => vec![claim("iss", issuer)],
            (_, Some((issuer, rest))) if rest.starts_with('/') && !rest.contains('*') => {
                vec![claim("iss", issuer), claim("sub", &rest[1..])]
            }
            _ => {
                let reason = "the issuer is unknown, or the wildcard is in the subject";
                field.refuse(reason, "add the RequestAuthentication, or compare claims");
                return None;
            }
        };
        let mut conditions = Map::new();
        conditions.insert("claims".to_owned(), json!(claims));
        all.push(Conjunction::of(conditions));
    }
    field.carry(&format!("{TO}.claims"));
    Some(all)
}
