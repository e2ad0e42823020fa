//! Rules of RequestAuthentications become providers of tokens.

use serde_json::{Map, Value, json};
use sesame_proto::jwks;

use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list};

const TO: &str = "AccessPolicy jwt.providers";
const MAX_PROVIDERS: usize = 4;

pub(super) fn providers(spec: &mut RemainingFields) -> Vec<Value> {
    let mut found = Vec::new();
    for field in spec.list("jwtRules") {
        if found.len() == MAX_PROVIDERS {
            let reason = format!("Sesame supports at most {MAX_PROVIDERS} providers");
            field.refuse(&reason, "split the policy");
            continue;
        }
        found.extend(provider(field));
    }
    if !found.is_empty() {
        let difference = "stricter: requests without a token get 401, not only those with an \
            invalid one; list routes in exemptions if they need none";
        spec.note_difference("jwtRules", "AccessPolicy jwt", difference);
    }
    found
}

/// Returns a provider whose name is derived from the issuer.
fn provider(field: TakenField) -> Option<Value> {
    let mut fields = field.fields();
    let mut output = Map::new();
    let issuer = fields.text("issuer", &format!("{TO}.issuer"))?;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name = issuer.trim_start_matches("https://").to_ascii_lowercase();
    let name: String = name.chars().map(plain).take(63).collect();
    put(&mut output, "name", Some(name.trim_matches('-')));
    put(&mut output, "issuer", Some(issuer));
    put_list(
        &mut output,
        "audiences",
        fields.texts("audiences", &format!("{TO}.audiences")),
    );
    let keys = keys(&mut fields);
    let has_keys = keys.is_some();
    put(&mut output, "jwks", keys);
    if let Some(field) = fields.take_tuning("timeout") {
        field.unneeded("all fetches have the same timeout");
    }
    put_list(&mut output, "sources", sources(&mut fields));
    let forwards = fields.flag("forwardOriginalToken", &format!("{TO}.forwardToken"));
    put(&mut output, "forwardToken", forwards.filter(|it| *it));
    let mut headers = Vec::new();
    for field in fields.list("outputClaimToHeaders") {
        let to = format!("{TO}.claimHeaders");
        let is_own = |it: &str| it.to_ascii_lowercase().starts_with("x-");
        if field.value()["header"].as_str().is_some_and(is_own) {
            headers.push(field.carry(&to));
        } else {
            field.refuse(
                "Sesame sets only headers that begin with x-",
                "rename the header",
            );
        }
    }
    put_list(&mut output, "claimHeaders", headers);
    if let Some(field) = fields.take("outputPayloadToHeader") {
        let reason = "Sesame forwards single claims, or the token";
        field.refuse(reason, "use outputClaimToHeaders or forwardOriginalToken");
    }
    if let Some(field) = fields.take("spaceDelimitedClaims") {
        field.refuse("claims are not split", "let the issuer add a list claim");
    }
    has_keys.then_some(output.into())
}

fn keys(fields: &mut RemainingFields) -> Option<Value> {
    if let Some(field) = fields.take("jwks") {
        fields.skip("jwksUri", "jwks takes precedence");
        return match jwks::canonical(field.as_str()) {
            Ok(_) => Some(json!({"inline": field.carry(&format!("{TO}.jwks.inline"))})),
            Err(error) => {
                let reason = format!("the key set is not usable: {error}");
                field.refuse(&reason, "sign tokens with a private key");
                None
            }
        };
    }
    let mut both = ["jwksUri", "jwks_uri"].into_iter();
    let Some(field) = both.find_map(|it| fields.take(it)) else {
        let reason = "Sesame does not ask issuers where their keys are";
        fields.refuse("jwksUri", reason, "set it");
        return None;
    };
    if !field.as_str().starts_with("https://") {
        field.refuse("key sets are fetched over HTTPS only", "use https, or jwks");
        return None;
    }
    let uri = field.carry(&format!("{TO}.jwks.remote.uri"));
    Some(json!({"remote": {"uri": uri}}))
}

fn sources(fields: &mut RemainingFields) -> Vec<Value> {
    let to = format!("{TO}.sources");
    let mut found = Vec::new();
    for field in fields.list("fromHeaders") {
        found.push(json!({"header": field.carry(&to)}));
    }
    for (list, ours) in [("fromParams", "queryParameter"), ("fromCookies", "cookie")] {
        found.extend(
            fields
                .texts(list, &to)
                .into_iter()
                .map(|it| json!({ ours: it })),
        );
    }
    if found.is_empty() {
        let difference = "stricter: Sesame does not read the query parameter access_token";
        fields.note_difference("fromHeaders", &to, difference);
    }
    found
}
