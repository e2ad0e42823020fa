//! Filters and policies that an Ingress's annotations add to all its rules.

use serde_json::{Map, Value, json};
use sesame_kinds::api::NGINX_PREFIX;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{
    HashPolicy, LoadBalancer, RateLimit, Retry, SessionPersistence, hash_policy,
    session_persistence,
};
use sesame_resolver::nginx_annotations::NginxCors;

use super::super::draft::{Draft, ObjectId};
use super::super::routing::{self, RuleDraft, ServiceSettings};
use super::super::values::{put, put_list, put_map};
use super::super::verdicts::FieldVerdict;
use super::rules::HostRules;
use super::{IngressInput, references};

/// What each rule gets.
#[derive(Debug, Default)]
pub(super) struct IngressPolicies {
    /// Filters of all rules.
    pub(super) filters: Vec<Value>,
    /// Filters of rules that forward requests.
    pub(super) forwarding: Vec<Value>,
    host: Option<String>,
    session: Option<Value>,
    pub(super) access: Map<String, Value>,
    traffic: Map<String, Value>,
}

pub(super) fn of(
    draft: &mut Draft,
    input: &mut IngressInput,
    services: &mut ServiceSettings,
    hosts: &[HostRules],
) -> IngressPolicies {
    let mut policies = IngressPolicies::default();
    let reading = &input.reading;
    if let Some(cors) = &reading.cors {
        policies
            .filters
            .push(routing::filter("CORS", cors_filter(cors)));
    }
    if let Some(prefix) = &reading.forwarded_prefix {
        let set = json!({"set": [{"name": "X-Forwarded-Prefix", "value": prefix}]});
        policies
            .forwarding
            .push(routing::filter("RequestHeaderModifier", set));
    }
    policies.host.clone_from(&reading.host);
    policies.session = reading.session.as_ref().map(session);
    policies.traffic = traffic(input);
    policies.access = addresses(input);
    for (name, convert) in references::ALL {
        if let Some(field) = input.annotations.remove(&format!("{NGINX_PREFIX}{name}")) {
            convert(draft, input, field, &mut policies);
        }
    }
    backends(input, services, hosts);
    policies
}

impl IngressPolicies {
    /// Returns true if requests need checks that other objects may lack.
    pub(super) fn protect(&self) -> bool {
        let limits = ["rateLimits", "requestBody"];
        !self.access.is_empty() || limits.iter().any(|it| self.traffic.contains_key(*it))
    }

    pub(super) fn apply(&self, rule: &mut RuleDraft) {
        let mut filters = self.filters.clone();
        let is_forwarding = rule.fields.contains_key("backendRefs");
        if is_forwarding {
            filters.extend(self.forwarding.iter().cloned());
        }
        let own = rule.fields.remove("filters");
        let mut own = own
            .and_then(|own| own.as_array().cloned())
            .unwrap_or_default();
        if let Some(host) = self.host.as_ref().filter(|_| is_forwarding) {
            match own.iter_mut().find(|it| it["type"] == "URLRewrite") {
                Some(rewrite) => rewrite["urlRewrite"]["hostname"] = json!(host),
                None => own.push(routing::filter("URLRewrite", json!({ "hostname": host }))),
            }
        }
        filters.append(&mut own);
        put_list(&mut rule.fields, "filters", filters);
        rule.access.clone_from(&self.access);
        if is_forwarding {
            put(&mut rule.fields, "sessionPersistence", self.session.clone());
            rule.traffic.clone_from(&self.traffic);
        } else {
            // As in ingress-nginx, redirects come before authorization.
            rule.access.retain(|part, _| part != "extAuth");
            rule.traffic.clone_from(&self.traffic);
            rule.traffic.retain(|part, _| part == "requestBody");
        }
    }
}

fn cors_filter(cors: &NginxCors) -> Value {
    let NginxCors {
        origins,
        methods,
        headers,
        exposed,
        credentials,
        max_age,
    } = cors;
    let mut output = Map::new();
    put_list(&mut output, "allowOrigins", origins.clone());
    put_list(&mut output, "allowMethods", methods.clone());
    put_list(&mut output, "allowHeaders", headers.clone());
    put_list(&mut output, "exposeHeaders", exposed.clone());
    put(&mut output, "allowCredentials", Some(*credentials));
    put(&mut output, "maxAge", *max_age);
    output.into()
}

fn session(session: &SessionPersistence) -> Value {
    let SessionPersistence {
        kind,
        cookie_max_age_seconds,
        cookie_path,
    } = session;
    let mut cookie = Map::new();
    if let Some(session_persistence::Kind::Cookie(name)) = kind {
        put(&mut cookie, "name", Some(name.as_str()));
    }
    put(
        &mut cookie,
        "path",
        Some(cookie_path.as_str()).filter(|it| !it.is_empty()),
    );
    let mut output = Map::new();
    put(&mut output, "type", Some("Cookie"));
    if *cookie_max_age_seconds > 0 {
        let timeout = routing::duration(cookie_max_age_seconds.saturating_mul(1000));
        put(&mut output, "absoluteTimeout", Some(timeout));
        put(&mut cookie, "lifetimeType", Some("Permanent"));
    }
    put_map(&mut output, "cookie", cookie);
    output.into()
}

fn traffic(input: &IngressInput) -> Map<String, Value> {
    let reading = &input.reading;
    let mut output = Map::new();
    let limits = reading.limits.iter().map(|limit| {
        let RateLimit {
            name,
            requests,
            per_ms,
            burst,
            ..
        } = limit;
        let per = if *per_ms == 1000 { "Second" } else { "Minute" };
        json!({
            "name": name.trim_start_matches('/'),
            "requests": requests,
            "per": per,
            "burst": burst,
            "keys": [{"type": "ClientAddress"}],
        })
    });
    put_list(&mut output, "rateLimits", limits.collect());
    if reading.max_body_bytes > 0 {
        let size = routing::bytes(reading.max_body_bytes);
        output.insert("requestBody".to_owned(), json!({ "maxSize": size }));
    }
    if let Some(idle) = reading.idle_ms {
        let timeouts = json!({ "streamIdle": routing::duration(idle) });
        output.insert("timeouts".to_owned(), timeouts);
    }
    if let Some(Retry {
        attempts, statuses, ..
    }) = &reading.retry
    {
        let mut retry = Map::new();
        put(&mut retry, "attempts", Some(*attempts));
        put_list(&mut retry, "codes", statuses.clone());
        output.insert("retry".to_owned(), retry.into());
    }
    output
}

fn addresses(input: &IngressInput) -> Map<String, Value> {
    let mut filter = Map::new();
    put_list(&mut filter, "allow", input.reading.allow.clone());
    put_list(&mut filter, "deny", input.reading.deny.clone());
    let mut output = Map::new();
    put_map(&mut output, "ipFilter", filter);
    output
}

/// Records what all Services of the Ingress need.
fn backends(input: &IngressInput, services: &mut ServiceSettings, hosts: &[HostRules]) {
    let mut settings = Map::new();
    if let Some(balancer) = input.reading.load_balancer.as_ref().and_then(balancer) {
        settings.insert("loadBalancer".to_owned(), balancer);
    }
    if let Some(timeout) = input.reading.connect_ms {
        let connection = json!({ "timeout": routing::duration(timeout) });
        settings.insert("connection".to_owned(), connection);
    }
    if settings.is_empty() {
        return;
    }
    let rules = hosts.iter().flat_map(|it| &it.rules);
    let backends = rules.filter_map(|it| it.fields.get("backendRefs")?.as_array());
    for backend in backends.flatten() {
        let name = backend["name"].as_str().unwrap_or_default();
        let service = ObjectId::new("Service", &input.id.namespace, name);
        if let Some(owner) = services.claim(service, &input.id, &settings) {
            let difference = format!("left out for Service {name}, which has settings of {owner}");
            let to = "BackendPolicy".to_owned();
            let verdict = FieldVerdict::Differs { to, difference };
            input.log.record("metadata.annotations", verdict);
        }
    }
}

fn balancer(balancer: &LoadBalancer) -> Option<Value> {
    let LoadBalancer {
        strategy: _,
        hash_policies,
        ..
    } = balancer;
    match balancer.strategy() {
        Strategy::LeastRequest => Some(json!({"type": "LeastRequest"})),
        Strategy::RingHash if !hashes_url(balancer) => {
            let keys: Vec<Value> = hash_policies.iter().filter_map(hash_key).collect();
            Some(json!({"type": "RingHash", "hash": keys}))
        }
        _ => None,
    }
}

/// Returns true if the host or path is hashed, which policies do not support.
pub(super) fn hashes_url(balancer: &LoadBalancer) -> bool {
    let mut keys = balancer.hash_policies.iter();
    keys.any(
        |it| matches!(&it.kind, Some(hash_policy::Kind::Header(name)) if name.starts_with(':')),
    )
}

fn hash_key(policy: &HashPolicy) -> Option<Value> {
    use hash_policy::Kind;
    Some(match policy.kind.as_ref()? {
        Kind::Header(name) => json!({"type": "Header", "name": name}),
        Kind::Cookie(name) => json!({"type": "Cookie", "name": name}),
        Kind::QueryParameter(name) => json!({"type": "QueryParameter", "name": name}),
        Kind::SourceAddress(_) => json!({"type": "ClientAddress"}),
    })
}
