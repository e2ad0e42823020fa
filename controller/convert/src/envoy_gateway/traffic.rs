//! `BackendTrafficPolicy` becomes a `TrafficPolicy`, and a `BackendPolicy` for the routes'
//! Services.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list, put_map, size};
use super::super::verdicts::{FieldVerdict, VerdictLog};
use super::targets::{self, PolicyTarget};
use super::{ANNOTATIONS, backends, limits, responses};

/// Fields that protect nothing, and have no counterpart.
const TUNING: &[&str] = &[
    "useClientProtocol",
    "telemetry",
    "dns",
    "http2",
    "connection",
    "admissionControl",
];
const MAX_ATTEMPTS: i64 = 15;

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let targets = targets::read(draft, id, &mut spec, targets::ACCESS);
    let mut timeout = spec.tuning_section("timeout");
    backends::convert(draft, id, &mut spec, &mut timeout, &targets, &metadata);
    let output = policy(draft, id, &mut spec, timeout, &targets);
    let is_layer_4 = targets.iter().any(PolicyTarget::is_l4);
    if is_layer_4 && !output.is_empty() {
        let reason = "a TrafficPolicy applies only to HTTP and gRPC";
        spec.refuse("targetRefs", reason, "split the policy");
    }
    drop(spec);
    drop(root);
    if let Some(broader) = targets::overriding(draft, id, &targets) {
        let difference = format!(
            "in Envoy Gateway, this policy replaces {broader} for its targets; in Sesame, limits \
            of both apply, and each other setting comes from the nearest policy that has it"
        );
        let to = "TrafficPolicy targetRefs".to_owned();
        log.record("spec.targetRefs", FieldVerdict::Differs { to, difference });
    }
    draft.record(id, &log, targets::ids(&targets));
    let refs = targets::as_refs(targets.iter().filter(|target| !target.is_l4()));
    if !output.is_empty() && !refs.is_empty() {
        let mut output = output;
        put_list(&mut output, "targetRefs", refs);
        draft.add(id, sesame_object("TrafficPolicy", metadata, output.into()));
    }
}

fn policy(
    draft: &Draft,
    id: &ObjectId,
    spec: &mut RemainingFields,
    timeout: RemainingFields,
    targets: &[PolicyTarget],
) -> Map<String, Value> {
    let mut output = Map::new();
    if let Some(field) = spec.take("rateLimit") {
        let is_shared = targets.iter().all(|target| !target.is_route());
        let limits = limits::convert(draft, field.fields(), is_shared);
        put_list(&mut output, "rateLimits", limits);
    }
    if let Some(field) = spec.take("requestBuffer") {
        let mut routes = targets.iter().flat_map(|it| targets::routes_of(draft, it));
        if routes.any(|route| route.kind == "GRPCRoute") {
            let reason = "Sesame does not limit the requests of GRPCRoutes, which are streams";
            field.refuse(reason, "let the policy target HTTPRoutes");
        } else {
            request_body(field.fields(), &mut output);
        }
    }
    let mut timeouts = timeouts(timeout);
    if let Some(field) = spec.take_tuning("retry") {
        put_map(&mut output, "retry", retry(field.fields(), &mut timeouts));
    }
    put_map(&mut output, "timeouts", timeouts);
    for name in ["compression", "compressor"] {
        if let Some(field) = spec.take_tuning(name) {
            let compression = responses::compression(field.items());
            put_map(&mut output, "compression", compression);
        }
    }
    if let Some(field) = spec.take_tuning("responseOverride") {
        let pages = responses::pages(draft, id, field.items());
        put_list(&mut output, "errorPages", pages);
    }
    if let Some(field) = spec.take_tuning("faultInjection") {
        put_map(&mut output, "fault", responses::fault(field.fields()));
    }
    if let Some(field) = spec.take_tuning("httpUpgrade") {
        for field in field.items() {
            if field.value() == &json!({"type": "websocket"}) {
                field.unneeded("Sesame always permits WebSocket");
            }
        }
    }
    if let Some(field) = spec.take("mergeType") {
        let difference = "Sesame always combines the policies of all levels, field by field";
        field.differ("TrafficPolicy", difference);
    }
    for name in TUNING {
        drop(spec.take_tuning(name));
    }
    output
}

fn request_body(mut fields: RemainingFields, output: &mut Map<String, Value>) {
    let Some(field) = fields.take("limit") else {
        fields.refuse("limit", "expected a size in bytes", "set the limit");
        return;
    };
    match size(field.value()) {
        Some(most) => {
            field.carry("TrafficPolicy requestBody.maxSize");
            output.insert("requestBody".to_owned(), json!({ "maxSize": most }));
        }
        None => field.refuse("expected a size in bytes", "use a value such as 4Mi"),
    }
}

fn timeouts(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let mut http = fields.section("http");
    for (theirs, ours) in [
        ("requestTimeout", "request"),
        ("streamIdleTimeout", "streamIdle"),
    ] {
        if let Some(field) = http.take(theirs) {
            let value = field.carry(&format!("TrafficPolicy timeouts.{ours}"));
            output.insert(ours.to_owned(), value);
        }
    }
    output
}

fn retry(mut fields: RemainingFields, timeouts: &mut Map<String, Value>) -> Map<String, Value> {
    let mut output = Map::new();
    // Envoy Gateway's default.
    let mut attempts = 2;
    if let Some(field) = fields.take("numRetries") {
        let given = field.value().as_i64().unwrap_or(attempts);
        attempts = given.clamp(0, MAX_ATTEMPTS);
        if attempts == given {
            field.carry("TrafficPolicy retry.attempts");
        } else {
            field.differ("TrafficPolicy retry.attempts", "at most 15");
        }
    }
    put(&mut output, "attempts", Some(attempts));
    let codes = match fields.take("retryOn") {
        Some(field) => retried(field.fields()),
        None => vec![503],
    };
    put_list(&mut output, "codes", codes);
    fields.skip(
        "numAttemptsPerPriority",
        "Sesame's backends have one priority",
    );
    let mut per_retry = fields.section("perRetry");
    if let Some(field) = per_retry.take("timeout") {
        let value = field.carry("TrafficPolicy timeouts.backendRequest");
        timeouts.insert("backendRequest".to_owned(), value);
    }
    let mut backoff = per_retry.section("backOff");
    if let Some(field) = backoff.take("baseInterval") {
        let value = field.carry("TrafficPolicy retry.backoff");
        output.insert("backoff".to_owned(), value);
    }
    if let Some(field) = backoff.take("maxInterval") {
        let difference = "the maximum is ten times the base interval";
        field.differ("TrafficPolicy retry.backoff", difference);
    }
    output
}

/// Returns the statuses to retry. Sesame always retries failed connections.
fn retried(mut fields: RemainingFields) -> Vec<i64> {
    let to = "TrafficPolicy retry.codes";
    let mut codes: Vec<i64> = Vec::new();
    for field in fields.list("triggers") {
        let more: &[i64] = match field.as_str() {
            "5xx" => &[500, 502, 503, 504],
            "gateway-error" => &[502, 503, 504],
            "retriable-4xx" => &[409],
            "connect-failure" | "refused-stream" | "retriable-status-codes" => &[],
            "reset" | "unavailable" => {
                let difference = "Sesame retries such failures if no backend saw the request";
                field.differ("TrafficPolicy retry", difference);
                continue;
            }
            _ => continue,
        };
        if field.as_str() == "5xx" {
            field.differ(to, "500, 502, 503 and 504; add other statuses if needed");
        } else {
            field.carry(to);
        }
        codes.extend(more);
    }
    if let Some(field) = fields.take("httpStatusCodes") {
        let list = field.value().as_array().cloned().unwrap_or_default();
        let own = list.iter().filter_map(Value::as_i64);
        codes.extend(own.filter(|code| (400..=599).contains(code)));
        field.carry(to);
    }
    codes.sort_unstable();
    codes.dedup();
    codes.truncate(16);
    codes
}

/// Returns a whole number, which may be written as `50.0`.
pub(super) fn whole(field: &TakenField) -> Option<i64> {
    let text = field.value().to_string();
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}
