//! `SecurityPolicy` becomes an `AccessPolicy`, and CORS filters of routes.

use serde_json::{Map, Value};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{milliseconds, put, put_list, put_map};
use super::super::verdicts::{FieldVerdict, VerdictLog};
use super::authorization::OtherChecks;
use super::targets::{self, PolicyTarget};
use super::{ANNOTATIONS, authorization, cors, credentials, oidc};
use sesame_proto::jwks;

const MAX_PROVIDERS: usize = 4;

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let targets = targets::read(draft, id, &mut spec, targets::ACCESS);
    describe_overriding(draft, id, &targets, &mut spec, &log);
    let mut output = Map::new();
    let checks = OtherChecks {
        providers: object["spec"]["jwt"]["providers"]
            .as_array()
            .map_or(0, Vec::len),
        headers: &draft.index().check_headers,
        sets_any_header: !object["spec"]["extAuth"]["grpc"].is_null(),
    };
    authorization::convert(spec.take("authorization"), &checks, &mut output);
    if let Some(field) = spec.take("basicAuth") {
        let basic = credentials::basic(id, field.fields());
        put_map(&mut output, "basicAuth", basic);
    }
    if let Some(field) = spec.take("apiKeyAuth") {
        let keys = credentials::api_keys(id, field.fields());
        put_map(&mut output, "apiKeyAuth", keys);
    }
    if let Some(field) = spec.take("jwt") {
        put_map(&mut output, "jwt", jwt(field.fields()));
    }
    if let Some(field) = spec.take("extAuth") {
        if !object["spec"]["jwt"].is_null() {
            let difference = "stricter: tokens are checked before the service is called";
            spec.note_difference("extAuth", "AccessPolicy extAuth", difference);
        }
        let external = credentials::external(draft, id, field.fields());
        put_map(&mut output, "extAuth", external);
    }
    if let Some(field) = spec.take("csrf") {
        csrf(field.fields(), &mut output);
    }
    if let Some(field) = spec.take("oidc") {
        if let Some((reason, remedy)) = oidc::refusal(field.value()) {
            field.refuse(reason, remedy);
        } else {
            let login = oidc::convert(draft, id, field.fields(), &targets);
            if login.is_empty() {
                let reason = "nothing of it can be converted";
                spec.refuse("oidc", reason, "correct it, or accept the loss");
            }
            put_map(&mut output, "oidc", login);
        }
    }
    if let Some(field) = spec.take("cors") {
        cors::convert(draft, id, field, &targets);
    }
    for part in ["basicAuth", "apiKeyAuth", "jwt", "extAuth"] {
        if !object["spec"][part].is_null() && !output.contains_key(part) {
            let reason = "nothing of it can be converted";
            spec.refuse(part, reason, "correct it, or accept the loss");
        }
    }
    let is_http_only = output.keys().any(|part| part != "ipFilter");
    if is_http_only && targets.iter().any(PolicyTarget::is_l4) {
        let reason = "for TCPRoutes, TLSRoutes and UDPRoutes, Sesame supports only client networks";
        spec.refuse("targetRefs", reason, "split the policy");
    }
    drop(spec);
    drop(root);
    draft.record(id, &log, targets::ids(&targets));
    let refs = targets::as_refs(&targets);
    if !output.is_empty() && !refs.is_empty() {
        put_list(&mut output, "targetRefs", refs);
        draft.add(id, sesame_object("AccessPolicy", metadata, output.into()));
    }
}

/// Envoy Gateway lets a route's policy replace the Gateway's. Sesame enforces both.
fn describe_overriding(
    draft: &Draft,
    id: &ObjectId,
    targets: &[PolicyTarget],
    spec: &mut RemainingFields,
    log: &VerdictLog,
) {
    if let Some(field) = spec.take("mergeType") {
        field.differ(
            "AccessPolicy",
            "Sesame always enforces the policies of all levels",
        );
        return;
    }
    if let Some(broader) = targets::overriding(draft, id, targets) {
        let difference = format!(
            "in Envoy Gateway, this policy replaces {broader} for its targets; Sesame enforces \
            both. To keep the replacement, list the routes in the other policy's exemptions"
        );
        let to = "AccessPolicy targetRefs".to_owned();
        log.record("spec.targetRefs", FieldVerdict::Differs { to, difference });
    }
}

fn jwt(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    if let Some(field) = fields.take("optional") {
        if field.value() == &Value::Bool(false) {
            field.unneeded("Sesame always requires a token");
        } else {
            let reason = "Sesame has no optional tokens";
            field.refuse(reason, "set it to false, or split the route");
        }
    }
    let mut providers = Vec::new();
    for field in fields.list("providers") {
        if providers.len() == MAX_PROVIDERS {
            let reason = format!("Sesame supports at most {MAX_PROVIDERS} providers");
            field.refuse(&reason, "split the policy");
            continue;
        }
        providers.extend(provider(field));
    }
    put_list(&mut output, "providers", providers);
    output
}

fn provider(field: TakenField) -> Option<Value> {
    let mut fields = field.fields();
    let mut output = Map::new();
    let to = |name: &str| format!("AccessPolicy jwt.providers.{name}");
    put(&mut output, "name", fields.text("name", &to("name")));
    let issuer = fields.text("issuer", &to("issuer"));
    if issuer.is_none() {
        let reason = "Sesame requires an issuer";
        fields.refuse("issuer", reason, "set the issuer of the tokens");
    }
    put(&mut output, "issuer", issuer.clone());
    let audiences = fields.texts("audiences", &to("audiences"));
    put_list(&mut output, "audiences", audiences);
    let mut keys = Map::new();
    if let Some(field) = fields.take("localJWKS") {
        local_keys(field.fields(), &mut keys);
    }
    if let Some(field) = fields.take("remoteJWKS") {
        put_map(&mut keys, "remote", remote_keys(field.fields()));
    }
    let has_keys = !keys.is_empty();
    put_map(&mut output, "jwks", keys);
    let headers = fields
        .list("claimToHeaders")
        .into_iter()
        .filter_map(claim_header);
    put_list(&mut output, "claimHeaders", headers.collect());
    if let Some(field) = fields.take("recomputeRoute") {
        if field.value() == &Value::Bool(false) {
            field.unneeded("Sesame never selects another route after a check");
        } else {
            let reason = "Sesame does not match routes by claims";
            field.refuse(reason, "use authorization rules on claims");
        }
    }
    let sources = if let Some(field) = fields.take("extractFrom") {
        sources(field.fields())
    } else {
        let difference = "stricter: Sesame does not read the query parameter access_token, \
            and rejects tokens without an expiry";
        fields.note_difference("extractFrom", &to("sources"), difference);
        Vec::new()
    };
    put_list(&mut output, "sources", sources);
    // Envoy Gateway forwards tokens, and backends may read them.
    put(&mut output, "forwardToken", Some(true));
    (issuer.is_some() && has_keys).then_some(Value::Object(output))
}

fn local_keys(mut fields: RemainingFields, keys: &mut Map<String, Value>) {
    fields.skip("type", "the other fields determine the type");
    if let Some(field) = fields.take("inline") {
        // Envoy Gateway accepts shared secrets, which Sesame would publish.
        match jwks::canonical(field.as_str()) {
            Ok(_) => {
                let inline = field.carry("AccessPolicy jwt.providers.jwks.inline");
                keys.insert("inline".to_owned(), inline);
            }
            Err(error) => {
                let reason = format!("the key set is not usable: {error}");
                field.refuse(&reason, "sign tokens with a private key");
            }
        }
    }
    if let Some(field) = fields.take("valueRef") {
        let text = |name: &str| field.value()[name].as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text("kind"), text("name"));
        if kind == "ConfigMap" {
            let difference = "the ConfigMap must contain the keys as jwks";
            field.differ("AccessPolicy jwt.providers.jwks.configMapRef", difference);
            let mut reference = Map::new();
            put(&mut reference, "name", Some(name));
            put_map(keys, "configMapRef", reference);
        } else {
            field.refuse("Sesame reads key sets from ConfigMaps", "use a ConfigMap");
        }
    }
}

/// Other fields, such as `backendRefs`, would change the server that the keys come from.
fn remote_keys(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    if let Some(field) = fields.take("uri") {
        if field.as_str().starts_with("https://") {
            let uri = field.carry("AccessPolicy jwt.providers.jwks.remote.uri");
            output.insert("uri".to_owned(), uri);
        } else {
            field.refuse("Sesame fetches keys only over HTTPS", "use an https URI");
        }
    }
    if let Some(field) = fields.take("cacheDuration") {
        let most = 86_400_000;
        match milliseconds(field.as_str()) {
            Some(10_000..=86_400_000) => {
                let time = field.carry("AccessPolicy jwt.providers.jwks.remote.cacheDuration");
                output.insert("cacheDuration".to_owned(), time);
            }
            Some(time) => {
                let to = "AccessPolicy jwt.providers.jwks.remote.cacheDuration";
                let nearest = if time > most { "24h" } else { "10s" };
                field.differ(to, &format!("the nearest supported value is {nearest}"));
                put(&mut output, "cacheDuration", Some(nearest));
            }
            None => field.refuse("expected a duration", "use a value such as 5m"),
        }
    }
    if output.contains_key("uri") {
        output
    } else {
        Map::new()
    }
}

fn claim_header(field: TakenField) -> Option<Value> {
    let header = field.value()["header"].as_str().unwrap_or_default();
    let is_ours = header.to_ascii_lowercase().starts_with("x-");
    let is_known = field.value()["claim"].is_string();
    let count = field.value().as_object().map_or(0, Map::len);
    if is_ours && is_known && count == 2 {
        return Some(field.carry("AccessPolicy jwt.providers.claimHeaders"));
    }
    let reason = "Sesame sets only headers that begin with x-";
    field.refuse(reason, "rename the header");
    None
}

fn sources(mut fields: RemainingFields) -> Vec<Value> {
    let mut output = Vec::new();
    let to = "AccessPolicy jwt.providers.sources";
    for field in fields.list("headers") {
        let mut fields = field.fields();
        let mut header = Map::new();
        put(&mut header, "name", fields.text("name", to));
        put(&mut header, "prefix", fields.text("valuePrefix", to));
        let mut source = Map::new();
        put_map(&mut source, "header", header);
        output.push(Value::Object(source));
    }
    for (name, ours) in [("params", "queryParameter"), ("cookies", "cookie")] {
        for value in fields.texts(name, to) {
            let mut source = Map::new();
            put(&mut source, ours, Some(value));
            output.push(Value::Object(source));
        }
    }
    output
}

fn csrf(mut fields: RemainingFields, output: &mut Map<String, Value>) {
    let mut origins = Vec::new();
    for field in fields.list("additionalOrigins") {
        let origin = field.as_str().to_ascii_lowercase();
        let host = origin.split_once("://").map(|(_, host)| host.to_owned());
        match host {
            Some(host) if !host.contains('*') => {
                field.carry("AccessPolicy csrf.additionalOrigins");
                origins.push(host);
            }
            _ => {
                let reason = "Sesame's additional origins have no wildcards";
                field.refuse(reason, "list the hosts");
            }
        }
    }
    let mut part = Map::new();
    put_list(&mut part, "additionalOrigins", origins);
    output.insert("csrf".to_owned(), Value::Object(part));
}
