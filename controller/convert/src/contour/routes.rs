//! `routes` become the rules of HTTPRoutes.

use serde_json::{Map, Value, json};
use sesame_kinds::api::{ProxyRetry, ProxyTimeouts};
use sesame_kinds::decode::from_value;
use sesame_proto::schema::Retry;
use sesame_proto::schema::retry::Condition;
use sesame_resolver::http_proxies::{ReadTimeouts, retries, timeouts};

use super::super::draft::Draft;
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, RouteDraft, RuleDraft};
use super::super::values::{put, put_list, put_map};
use super::host::ProxyHostDraft;
use super::matches::TextPrefix;
use super::{ProxyTree, Visit, access, actions, balance, limits, matches, services, tokens};

const TIMEOUTS: &str = "HTTPRoute rules.timeouts";
const RETRY: &str = "TrafficPolicy retry";
const HTTPS_REDIRECT: i64 = 301;
/// How a request is answered; exactly one of them is set.
const ACTIONS: [&str; 3] = ["services", "requestRedirectPolicy", "directResponsePolicy"];

pub(super) fn convert(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    list: Vec<TakenField>,
) {
    let mut secure: Vec<RuleDraft> = Vec::new();
    let mut insecure: Vec<RuleDraft> = Vec::new();
    let mut kept: Vec<bool> = list
        .iter()
        .rev()
        .map(|field| {
            let key = matches::key(&visit.includes, field.value());
            key.is_none_or(|key| tree.matches.insert(key))
        })
        .collect();
    kept.reverse();
    for (field, is_kept) in list.into_iter().zip(kept) {
        if !is_kept {
            field.unneeded("a later route has the same conditions, and gets the requests");
            continue;
        }
        let mut fields = field.fields();
        let is_insecure = fields.flag("permitInsecure", "HTTPRoute parentRefs") == Some(true);
        let Some(rule) = rule(draft, tree, host, visit, &mut fields) else {
            continue;
        };
        if is_insecure || !host.has_tls {
            insecure.push(rule);
        } else {
            secure.push(rule);
        }
    }
    let http = routing::http_parent(&host.class);
    let https = host.has_tls.then(|| {
        let listener = routing::listener_name(&host.fqdn);
        routing::listener_parent(&host.root, &visit.id.namespace, &listener)
    });
    let both: Vec<Value> = [http.clone()].into_iter().chain(https.clone()).collect();
    let redirects: Vec<RuleDraft> = secure.iter().map(to_https).collect();
    let secure_parents = https.into_iter().collect();
    let base = name(tree, host, visit);
    let parts = [
        ("", secure_parents, secure),
        ("insecure", both, insecure),
        ("redirect", vec![http], redirects),
    ];
    let mut routes: Vec<RouteDraft> = Vec::new();
    for (suffix, parents, rules) in parts {
        if rules.is_empty() {
            continue;
        }
        let name = match suffix {
            "redirect" => format!("{base}-redirect"),
            suffix if routes.is_empty() || suffix.is_empty() => base.clone(),
            suffix => format!("{base}-{suffix}"),
        };
        routes.push(RouteDraft {
            name,
            hostnames: vec![host.fqdn.clone()],
            parents,
            rules,
        });
    }
    let metadata = routing::named(&visit.metadata, &base);
    routing::add_routes(draft, &visit.sources(), &metadata, routes);
}

/// Returns the HTTPProxy's name, with the host's if the HTTPProxy is included several times.
fn name(tree: &mut ProxyTree, host: &ProxyHostDraft, visit: &Visit) -> String {
    let id = &visit.id;
    let mut name = id.name.clone();
    let mut number = 1;
    while !tree.names.insert((id.namespace.clone(), name.clone())) {
        number += 1;
        name = routing::suffixed(&id.name, &host.fqdn, number);
        if number > 2 {
            name = format!("{}-{number}", id.name);
        }
    }
    name
}

/// As in Contour, only addresses are checked before a redirect to HTTPS.
fn to_https(rule: &RuleDraft) -> RuleDraft {
    let mut redirect = RuleDraft {
        matches: rule.matches.clone(),
        access: rule.access.clone(),
        ..RuleDraft::default()
    };
    redirect.access.retain(|part, _| part == "ipFilter");
    let to = json!({"scheme": "https", "statusCode": HTTPS_REDIRECT});
    let filter = routing::filter("RequestRedirect", to);
    put_list(&mut redirect.fields, "filters", vec![filter]);
    redirect
}

/// Returns `None` if the route's matches or action were refused.
fn rule(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    fields: &mut RemainingFields,
) -> Option<RuleDraft> {
    let found = matches::read(&visit.includes, fields);
    let mut rule = RuleDraft::default();
    fields.skip("enableWebsockets", "all routes support WebSockets");
    let limits = limits::convert(fields, false);
    put_list(
        &mut rule.traffic,
        "rateLimits",
        limits.unwrap_or_else(|| host.limits.clone()),
    );
    let addresses = access::addresses(fields).unwrap_or_else(|| host.addresses.clone());
    put_map(&mut rule.access, "ipFilter", addresses);
    put(&mut rule.access, "jwt", tokens::required(fields, host));
    // As in Contour, the routes without services are authorized even if they opt out.
    let forwards = fields.has("services");
    let is_authorized = access::is_authorized(fields, host.auth.as_ref());
    if is_authorized || !forwards {
        let auth = host.auth.as_ref();
        let section = auth.map(|auth| auth.in_namespace(draft, &visit.id.namespace));
        put(&mut rule.access, "extAuth", section);
    }
    actions::cookies(fields);
    if let Some(field) = fields.take_tuning("internalRedirectPolicy") {
        field.refuse("clients follow redirects themselves", "remove it");
    }
    let prefix = found.as_ref().and_then(|it| it.prefix.clone());
    let filters = action(draft, tree, visit, (fields, prefix.as_deref()), &mut rule)?;
    let filters = host.cors.iter().cloned().chain(filters);
    put_list(
        &mut rule.fields,
        "filters",
        routing::merge_rewrites(filters.collect()),
    );
    let found = found?;
    rule.matches = vec![found.matched];
    if let (Some(conditions), Some(prefix)) = (found.text, prefix) {
        let rule = rule.clone();
        tree.texts.push(TextPrefix {
            prefix,
            rule,
            conditions,
        });
    }
    tree.rules.push(rule.clone());
    Some(rule)
}

/// Returns the filters.
fn action(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    visit: &Visit,
    (fields, prefix): (&mut RemainingFields, Option<&str>),
    rule: &mut RuleDraft,
) -> Option<Vec<Value>> {
    let mut filters = Vec::new();
    if let Some(field) = fields.take("requestHeadersPolicy") {
        filters.extend(actions::headers(
            field.fields(),
            "RequestHeaderModifier",
            visit,
        ));
    }
    if let Some(field) = fields.take("pathRewritePolicy") {
        filters.extend(actions::path_rewrite(field.fields(), prefix));
    }
    if let Some(field) = fields.take("responseHeadersPolicy") {
        filters.extend(actions::headers(
            field.fields(),
            "ResponseHeaderModifier",
            visit,
        ));
    }
    let timeouts = timeouts_of(fields, rule);
    let mut settings = Map::new();
    if let Some(field) = fields.take_tuning("loadBalancerPolicy") {
        let session = balance::strategy(field.fields(), &mut settings);
        put(&mut rule.fields, "sessionPersistence", session);
    }
    if let Some(field) = fields.take_tuning("healthCheckPolicy") {
        balance::health(field.fields(), &mut settings);
    }
    balance::idle(timeouts, &mut settings);
    let redirect = fields.take("requestRedirectPolicy");
    let response = fields.take("directResponsePolicy");
    let services = services::read(draft, tree, visit, fields, &settings);
    match (redirect, response, services.backends.is_empty()) {
        (Some(redirect), None, true) => filters.push(actions::redirect(redirect.fields())),
        (None, Some(response), true) => {
            filters.push(actions::respond(draft, visit, response.fields()));
        }
        (None, None, false) => {
            put_list(&mut rule.fields, "backendRefs", services.backends);
            filters.extend(services.mirrors);
            return Some(filters);
        }
        (redirect, response, _) => {
            drop((redirect, response));
            let reason = format!("a route has exactly one of {}", ACTIONS.join(", "));
            fields.refuse("services", &reason, "correct the route");
            return None;
        }
    }
    // These responses do not depend on a backend.
    for name in ["timeouts", "sessionPersistence"] {
        rule.fields.remove(name);
    }
    rule.traffic.retain(|name, _| name == "rateLimits");
    Some(filters)
}

/// Reads timeouts and retries. Returns the timeout of idle connections.
fn timeouts_of(fields: &mut RemainingFields, rule: &mut RuleDraft) -> Option<TakenField> {
    let mut idle_connection = None;
    let policy = fields.take("timeoutPolicy");
    let spec: Option<ProxyTimeouts> = policy
        .as_ref()
        .and_then(|field| from_value(field.value().clone()).ok());
    let read = timeouts(spec.as_ref());
    let mut times = Map::new();
    match (read, policy) {
        (Ok(ReadTimeouts { request, idle }), policy) => {
            put(&mut times, "request", Some(routing::duration(request)));
            if let Some(policy) = policy {
                let mut own = policy.fields();
                own.text("response", TIMEOUTS);
                own.text("idle", "TrafficPolicy timeouts.streamIdle");
                idle_connection = own.take("idleConnection").map(|it| it.protecting(false));
            }
            if let Some(idle) = idle {
                let idle = json!({ "streamIdle": routing::duration(idle) });
                rule.traffic.insert("timeouts".to_owned(), idle);
            }
            if let Some(field) = fields.take_tuning("retryPolicy") {
                retry(field, rule, (request, &mut times));
            }
        }
        (Err(why), Some(policy)) => policy.refuse_duration(&why),
        (Err(_), None) => {}
    }
    put_map(&mut rule.fields, "timeouts", times);
    idle_connection
}

fn retry(
    field: TakenField,
    rule: &mut RuleDraft,
    (request, times): (u64, &mut Map<String, Value>),
) {
    let Ok(spec) = from_value::<ProxyRetry>(field.value().clone()) else {
        field.refuse("malformed retries", "correct them");
        return;
    };
    let (retry, attempt, ignored) = retries(&spec);
    let mut fields = field.fields();
    fields.number("count", RETRY);
    if let Some(field) = fields.take("perTryTimeout") {
        // The Gateway API requires that an attempt is not longer than the request.
        if attempt > 0 && (request == 0 || attempt <= request) {
            field.carry(TIMEOUTS);
            put(times, "backendRequest", Some(routing::duration(attempt)));
        } else {
            field.unneeded("the request ends before");
        }
    }
    let Retry {
        attempts,
        statuses,
        conditions,
        ..
    } = retry.unwrap_or_default();
    let mut codes: Vec<u32> = statuses;
    for condition in conditions
        .iter()
        .filter_map(|it| Condition::try_from(*it).ok())
    {
        codes.extend(match condition {
            Condition::ServerError => &[500, 502, 503, 504][..],
            Condition::GatewayError => &[502, 503, 504],
            Condition::Retriable4xx => &[409],
            _ => &[],
        });
    }
    codes.retain(|code| (400..600).contains(code));
    codes.sort_unstable();
    codes.dedup();
    codes.truncate(16);
    if let Some(field) = fields.take("retryOn") {
        if ignored.is_empty() {
            let difference = "5xx means 500, 502, 503 and 504; connections that fail are always \
                retried";
            field.differ(RETRY, difference);
        } else {
            field.refuse(&ignored.join("; "), "use other conditions");
        }
    }
    if let Some(field) = fields.take("retriableStatusCodes") {
        field.carry(&format!("{RETRY}.codes"));
    }
    let mut output = Map::new();
    put(&mut output, "attempts", Some(attempts));
    put_list(&mut output, "codes", codes);
    rule.traffic.insert("retry".to_owned(), output.into());
}
