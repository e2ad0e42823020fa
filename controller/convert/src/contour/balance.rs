//! Load balancing, health checks and connections of Services.

use serde_json::{Map, Value, json};
use sesame_resolver::http_proxies::duration;

use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::super::values::{put, put_list, put_map};

const BALANCER: &str = "BackendPolicy loadBalancer";
const CHECK: &str = "BackendPolicy healthCheck.active";
const COOKIE: &str = "X-Contour-Session-Affinity";

/// Returns the session persistence of a rule.
pub(super) fn strategy(
    mut fields: RemainingFields,
    settings: &mut Map<String, Value>,
) -> Option<Value> {
    let mut balancer = Map::new();
    let mut session = None;
    if let Some(field) = fields.take("strategy") {
        let kind = match field.as_str() {
            "WeightedLeastRequest" => Some("LeastRequest"),
            "Random" => Some("Random"),
            "RequestHash" => Some("RingHash"),
            _ => None,
        };
        if field.as_str() == "Cookie" {
            let difference = "endpoints are kept when others change";
            field.differ("HTTPRoute rules.sessionPersistence", difference);
            session = Some(json!({"type": "Cookie", "cookie": {"name": COOKIE}}));
        } else if kind.is_some() {
            field.carry(&format!("{BALANCER}.type"));
        } else {
            field.unneeded("RoundRobin is the default");
        }
        put(&mut balancer, "type", kind);
    }
    let is_hash = balancer.get("type").is_some_and(|kind| kind == "RingHash");
    let mut keys = Vec::new();
    for field in fields.list("requestHashPolicies") {
        if !is_hash {
            field.unneeded("the strategy is not RequestHash");
            continue;
        }
        let mut policy = field.fields();
        let to = format!("{BALANCER}.hash");
        if let Some(field) = policy.take_set("terminal", &json!(false))
            && field.value() == &json!(true)
        {
            field.differ(&to, "all values are hashed");
        }
        if policy.flag("hashSourceIP", &to) == Some(true) {
            keys.push(json!({"type": "ClientAddress"}));
        }
        let mut header = policy.section("headerHashOptions");
        if let Some(name) = header.text("headerName", &to) {
            keys.push(json!({"type": "Header", "name": name}));
        }
        drop(header);
        let mut parameter = policy.section("queryParameterHashOptions");
        if let Some(name) = parameter.text("parameterName", &to) {
            keys.push(json!({"type": "QueryParameter", "name": name}));
        }
    }
    if is_hash && keys.is_empty() {
        return session;
    }
    put_list(&mut balancer, "hash", keys);
    put_map(settings, "loadBalancer", balancer);
    session
}

pub(super) fn slow_start(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut start = Map::new();
    let to = format!("{BALANCER}.slowStart");
    if let Some(field) = fields.take("window") {
        match duration(field.as_str()) {
            Ok(window) => {
                field.carry(&to);
                put(&mut start, "window", Some(routing::duration(window)));
            }
            Err(why) => field.refuse_duration(&why),
        }
    }
    if let Some(field) = fields.take("aggression") {
        field.differ(&to, "traffic grows linearly");
    }
    put(
        &mut start,
        "minWeightPercent",
        fields.number("minWeightPercent", &to),
    );
    let balancer = settings.entry("loadBalancer");
    let balancer = balancer.or_insert_with(|| json!({"type": "RoundRobin"}));
    if start.contains_key("window")
        && ["RoundRobin", "LeastRequest"]
            .iter()
            .any(|kind| balancer["type"] == **kind)
    {
        balancer["slowStart"] = start.into();
    }
}

pub(super) fn health(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut check = Map::new();
    let mut http = Map::new();
    put(
        &mut http,
        "path",
        fields.text("path", &format!("{CHECK}.http")),
    );
    let host = fields.text("host", &format!("{CHECK}.http"));
    put(&mut http, "hostname", host.filter(|it| !it.is_empty()));
    let statuses = fields.list("expectedStatuses").into_iter().map(|field| {
        let mut range = field.fields();
        let to = format!("{CHECK}.http.statuses");
        let first = range.number("start", &to).unwrap_or(200);
        let end = range.number("end", &to).unwrap_or(first + 1);
        json!({"first": first, "last": end.saturating_sub(1)})
    });
    put_list(&mut http, "statuses", statuses.collect());
    check.insert("http".to_owned(), http.into());
    timing(&mut fields, &mut check);
    settings.insert("healthCheck".to_owned(), json!({ "active": check }));
}

pub(super) fn tcp_health(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut check = Map::new();
    check.insert("tcp".to_owned(), json!({}));
    timing(&mut fields, &mut check);
    settings.insert("healthCheck".to_owned(), json!({ "active": check }));
}

/// Contour's defaults apply to unset values.
fn timing(fields: &mut RemainingFields, check: &mut Map<String, Value>) {
    for (theirs, ours, default, most) in [
        ("intervalSeconds", "interval", 10, 86_400),
        ("timeoutSeconds", "timeout", 2, 10),
    ] {
        let mut seconds = default;
        if let Some(field) = fields.take(theirs) {
            let given = field
                .value()
                .as_i64()
                .filter(|it| *it > 0)
                .unwrap_or(default);
            seconds = given.min(most);
            let to = format!("{CHECK}.{ours}");
            if seconds == given {
                field.carry(&to);
            } else {
                field.differ(
                    &to,
                    "at most 10 seconds for a check, and a day between checks",
                );
            }
        }
        put(check, ours, Some(format!("{seconds}s")));
    }
    for (theirs, ours, default) in [
        ("unhealthyThresholdCount", "unhealthyThreshold", 3),
        ("healthyThresholdCount", "healthyThreshold", 2),
    ] {
        let given = fields.number(theirs, &format!("{CHECK}.{ours}"));
        put(
            check,
            ours,
            Some(given.filter(|it| *it > 0).unwrap_or(default)),
        );
    }
}

/// Reads the time after which an idle connection is closed.
pub(super) fn idle(field: Option<TakenField>, settings: &mut Map<String, Value>) {
    let Some(field) = field else { return };
    let time = match field.as_str() {
        "infinity" | "infinite" => Ok(0),
        text => duration(text),
    };
    match time {
        Ok(time) => {
            field.carry("BackendPolicy connection.idleTimeout");
            let connection = json!({ "idleTimeout": routing::duration(time) });
            settings.insert("connection".to_owned(), connection);
        }
        Err(why) => field.refuse_duration(&why),
    }
}

pub(super) fn breaker(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut breaker = Map::new();
    for (theirs, ours) in [
        ("maxConnections", "maxConnections"),
        ("maxPendingRequests", "maxPendingRequests"),
        ("maxRequests", "maxRequests"),
        ("maxRetries", "maxRetries"),
        ("perHostMaxConnections", "maxConnectionsPerEndpoint"),
    ] {
        let given = fields.number(theirs, &format!("BackendPolicy circuitBreaker.{ours}"));
        put(&mut breaker, ours, given.filter(|it| *it > 0));
    }
    put_map(settings, "circuitBreaker", breaker);
}
