//! JWT providers become providers of AccessPolicies.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sesame_resolver::http_proxies::duration;

use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::{put, put_list};
use super::host::ProxyHostDraft;

const TO: &str = "AccessPolicy jwt.providers";

/// Returns the providers and the name of the default.
pub(super) fn providers(host: &mut RemainingFields) -> (BTreeMap<String, Value>, Option<String>) {
    let mut providers = BTreeMap::new();
    let mut default = None;
    for field in host.list("jwtProviders") {
        let mut fields = field.fields();
        let name = fields.text("name", TO).unwrap_or_default();
        if fields.flag("default", "AccessPolicy targetRefs") == Some(true) {
            default = Some(name.clone());
        }
        providers.insert(name.clone(), provider(name, fields));
    }
    (providers, default)
}

fn provider(name: String, mut fields: RemainingFields) -> Value {
    let mut output = Map::new();
    put(&mut output, "name", Some(name));
    let issuer = fields.text("issuer", TO).filter(|it| !it.is_empty());
    if issuer.is_none() {
        let reason = "Sesame accepts tokens of one issuer only";
        fields.refuse("issuer", reason, "name the issuer");
    }
    put(&mut output, "issuer", issuer);
    put_list(&mut output, "audiences", fields.texts("audiences", TO));
    let remote = fields
        .take("remoteJWKS")
        .map(|field| remote(field.fields()));
    let local = fields.take("localJWKS").map(|field| local(field.fields()));
    match remote.or(local) {
        Some(keys) => drop(output.insert("jwks".to_owned(), keys)),
        None => fields.refuse("remoteJWKS", "there is no key set", "add one"),
    }
    let forwards = fields.flag("forwardJWT", &format!("{TO}.forwardToken"));
    put(&mut output, "forwardToken", forwards.filter(|it| *it));
    output.into()
}

fn remote(mut fields: RemainingFields) -> Value {
    let to = format!("{TO}.jwks.remote");
    let mut output = Map::new();
    match fields.take("uri") {
        Some(field) if field.as_str().starts_with("https://") => {
            output.insert("uri".to_owned(), field.carry(&to));
        }
        Some(field) => field.refuse("key sets are fetched over HTTPS only", "use https"),
        None => fields.refuse("uri", "there is no URI", "add it"),
    }
    fields.skip("timeout", "all fetches have the same timeout");
    fields.skip("dnsLookupFamily", "both families are tried");
    if let Some(field) = fields.take("cacheDuration") {
        match duration(field.as_str()) {
            Ok(time) => {
                let given = time;
                let time = time.clamp(10_000, 86_400_000);
                put(&mut output, "cacheDuration", Some(routing::duration(time)));
                if time == given {
                    field.carry(&to);
                } else {
                    field.differ(&to, "at least 10 seconds, at most 24 hours");
                }
            }
            Err(why) => field.refuse_duration(&why),
        }
    }
    if let Some(field) = fields.take("validation") {
        let mut validation = field.fields();
        let difference = "put ca.crt of the Secret into a ConfigMap of the same name, in the \
                namespace of each AccessPolicy";
        if let Some(field) = validation.take("caSecret") {
            let name = field.as_str().rsplit('/').next().unwrap_or_default();
            let reference = json!({ "name": name });
            output.insert("caCertificateRef".to_owned(), reference);
            field.differ(&to, difference);
        }
        for name in ["subjectName", "subjectNames"] {
            if let Some(field) = validation.take(name) {
                field.differ(&to, "the certificate must have the name in the URI");
            }
        }
    } else {
        let difference = "stricter: the certificate is verified with the system's CAs";
        fields.note_difference("validation", &to, difference);
    }
    json!({ "remote": output })
}

fn local(mut fields: RemainingFields) -> Value {
    let to = format!("{TO}.jwks.configMapRef");
    let mut output = Map::new();
    if let Some(field) = fields.take("secretName") {
        let difference = "put the key set, which is not secret, into a ConfigMap of the same name, \
            in the namespace of each AccessPolicy";
        let name: &TakenField = &field;
        put(&mut output, "name", Some(name.as_str()));
        field.differ(&to, difference);
    }
    put(&mut output, "key", fields.text("key", &to));
    json!({ "configMapRef": output })
}

/// Returns the section of a route's policy.
pub(super) fn required(fields: &mut RemainingFields, host: &ProxyHostDraft) -> Option<Value> {
    let mut name = host.default_provider.clone();
    if let Some(field) = fields.take("jwtVerificationPolicy") {
        let mut policy = field.fields();
        if let Some(field) = policy.take("require") {
            if host.providers.contains_key(field.as_str()) {
                name = Some(field.as_str().to_owned());
                field.carry("AccessPolicy jwt");
            } else {
                field.refuse("the host has no such provider", "correct the name");
            }
        }
        if policy.flag("disabled", "AccessPolicy targetRefs") == Some(true) {
            name = None;
        }
    }
    let provider = host.providers.get(&name?)?;
    Some(json!({"providers": [provider]}))
}
