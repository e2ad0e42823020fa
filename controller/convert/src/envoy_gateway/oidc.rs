//! Logins. Secrets are only referred to.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::RemainingFields;
use super::super::values::{put, put_list, put_map};
use super::credentials;
use super::targets::PolicyTarget;

const MAX_HOSTNAMES: usize = 16;
/// Sesame always requests it.
const OPENID: &str = "openid";

fn to(name: &str) -> String {
    format!("AccessPolicy oidc.{name}")
}

/// Returns the reason why the login cannot be converted at all, and a remedy.
pub(super) fn refusal(login: &Value) -> Option<(&'static str, &'static str)> {
    let provider = &login["provider"];
    let lacks = |names: [&str; 2]| names.map(|name| provider[name].is_null());
    if lacks(["authorizationEndpoint", "tokenEndpoint"]) != [false, false]
        && provider["issuer"].is_null()
    {
        return Some((
            "the provider has no issuer",
            "set issuer, or both endpoints",
        ));
    }
    (lacks(["backendRef", "backendRefs"]) == [true, true]).then_some((
        "Sesame reaches the token endpoint through a Service",
        "add backendRefs with a Service for the provider, and a BackendTLSPolicy",
    ))
}

/// Returns an empty mapping if a required part is missing or refused.
pub(super) fn convert(
    draft: &Draft,
    id: &ObjectId,
    mut fields: RemainingFields,
    targets: &[PolicyTarget],
) -> Map<String, Value> {
    let mut output = Map::new();
    let provider = provider(draft, id, fields.section("provider"));
    let client = fields.text("clientID", &to("clientID"));
    let secret = fields.take("clientSecret");
    let secret = secret.and_then(|field| credentials::secret(id, field, &to("clientSecret")));
    let (host, path) = redirect(&mut fields);
    let hostnames = host.map_or_else(|| hostnames(draft, targets), |host| vec![host]);
    if !(1..=MAX_HOSTNAMES).contains(&hostnames.len()) {
        let reason = format!(
            "Sesame needs 1 to {MAX_HOSTNAMES} hostnames of the targets, to which users may return"
        );
        let remedy = "set redirectURL to a URL with the host, or hostnames in the routes";
        fields.refuse("redirectURL", &reason, remedy);
        return output;
    }
    let mut scopes = fields.texts("scopes", &to("scopes"));
    scopes.retain(|scope| scope != OPENID);
    let logout = fields.text("logoutPath", &to("logoutPath"));
    let forwards = fields.flag("forwardAccessToken", &to("forwardToken"));
    let renews = fields.flag("refreshToken", &to("refresh"));
    fields.skip("cookieNames", "Sesame's cookies are named after the policy");
    let (Some(provider), Some(client), Some(secret)) = (provider, client, secret) else {
        return output;
    };
    let difference = "a client-secret of fewer than 16 characters also needs an hmac-secret";
    fields.note_difference("clientSecret", &to("clientSecret"), difference);
    put_map(&mut output, "provider", provider);
    put(&mut output, "clientID", Some(client));
    output.insert("clientSecret".to_owned(), secret);
    put_list(&mut output, "hostnames", hostnames);
    put_list(&mut output, "scopes", scopes);
    put(&mut output, "redirectPath", path);
    put(&mut output, "logoutPath", logout);
    let forwarded = (forwards == Some(true)).then_some("AccessToken");
    put(&mut output, "forwardToken", forwarded);
    put(&mut output, "refresh", renews);
    output
}

fn provider(
    draft: &Draft,
    id: &ObjectId,
    mut fields: RemainingFields,
) -> Option<Map<String, Value>> {
    let to = |name: &str| to(&format!("provider.{name}"));
    let issuer = fields.text("issuer", &to("issuer"));
    let names = ["authorizationEndpoint", "tokenEndpoint"];
    let endpoints = names.map(|name| (name, fields.text(name, &to(name))));
    let end = fields.text("endSessionEndpoint", &to("endSessionEndpoint"));
    let backend = credentials::backend(draft, id, &mut fields, &to("backendRef"))?;
    let mut output = Map::new();
    put(&mut output, "issuer", issuer);
    for (name, endpoint) in endpoints {
        put(&mut output, name, endpoint);
    }
    put(&mut output, "endSessionEndpoint", end);
    output.insert("backendRef".to_owned(), backend);
    Some(output)
}

/// Returns the host, unless it is the request's, and the path.
fn redirect(fields: &mut RemainingFields) -> (Option<String>, Option<String>) {
    let Some(url) = fields.text("redirectURL", &to("redirectPath")) else {
        return (None, None);
    };
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.split(':').next().unwrap_or_default();
    let host = (!host.is_empty() && !authority.contains('%')).then(|| host.to_ascii_lowercase());
    (host, (!path.is_empty()).then(|| path.to_owned()))
}

/// Returns the hostnames of the targets, or an empty list if one of them has none.
fn hostnames(draft: &Draft, targets: &[PolicyTarget]) -> Vec<String> {
    let mut all = BTreeSet::new();
    for target in targets {
        let object = draft.input(&target.id);
        let names = object.and_then(|it| it["spec"]["hostnames"].as_array());
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return Vec::new();
        };
        all.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    all.into_iter().collect()
}
