//! Middlewares that limit or transform traffic.

use serde_json::{Map, Value, json};
use sesame_resolver::http_proxies::duration;

use super::super::draft::Draft;
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list};
use super::middlewares::RuleParts;

const LIMIT: &str = "TrafficPolicy rateLimits";
const BODY: &str = "TrafficPolicy requestBody.maxSize";
const COMPRESSION: &str = "TrafficPolicy compression";
const RETRY: &str = "TrafficPolicy retry";
const MAX_ATTEMPTS: i64 = 15;

pub(super) fn rate_limit(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let average = fields.number("average", LIMIT).unwrap_or_default();
    let burst = fields.number("burst", LIMIT).unwrap_or(1);
    let period = match fields.take("period") {
        None => Some(1000),
        Some(field) => {
            let text = field.value().as_i64().map(|it| format!("{it}s"));
            let period = duration(text.as_deref().unwrap_or(field.as_str())).ok();
            let per = period.and_then(|it| per(average, it));
            match per {
                Some(_) => drop(field.carry(LIMIT)),
                None => field.refuse(
                    "a limit counts per second, minute or hour",
                    "use 1s, 1m or 1h",
                ),
            }
            period.filter(|_| per.is_some())
        }
    };
    let mut keys = vec![json!({"type": "ClientAddress"})];
    if let Some(field) = fields.take("sourceCriterion") {
        let mut criterion = field.fields();
        if let Some(name) = criterion.text("requestHeaderName", LIMIT) {
            keys = vec![json!({"type": "Header", "name": name})];
        }
        if criterion.flag("requestHost", LIMIT) == Some(true) {
            keys = vec![json!({"type": "Header", "name": "host"})];
        }
        if let Some(field) = criterion.take_set("ipStrategy", &json!({})) {
            let reason = "proxies in front are trusted for a whole Gateway";
            field.refuse(reason, "set spec.edge.clientAddress, then accept the loss");
        }
    }
    if let Some(field) = fields.take("redis") {
        field.differ(LIMIT, "each host counts for itself; consider scope: Fleet");
    }
    if average == 0 {
        fields.note_difference("average", LIMIT, "left out, because 0 means no limit");
        return;
    }
    let Some(period) = period else {
        return;
    };
    let Some((requests, per)) = per(average, period) else {
        fields.refuse(
            "average",
            "the limit is negative or too large",
            "correct it",
        );
        return;
    };
    fields.note_difference("average", LIMIT, "each listener port counts separately");
    let known = parts
        .traffic
        .entry("rateLimits")
        .or_insert_with(|| json!([]));
    if let Some(list) = known.as_array_mut() {
        let mut limit = Map::new();
        put(
            &mut limit,
            "name",
            Some(format!("limit-{}", list.len() + 1)),
        );
        put(&mut limit, "requests", Some(requests));
        put(&mut limit, "per", Some(per));
        put(
            &mut limit,
            "burst",
            Some(burst.saturating_sub(1)).filter(|it| *it > 0),
        );
        put_list(&mut limit, "keys", keys);
        list.push(limit.into());
    }
}

/// Returns requests and period.
fn per(average: i64, period: u64) -> Option<(i64, &'static str)> {
    let periods = [(1000, "Second"), (60_000, "Minute"), (3_600_000, "Hour")];
    let period = i64::try_from(period).ok().filter(|it| *it > 0)?;
    periods.into_iter().find_map(|(ms, per)| {
        let total = average.checked_mul(ms).filter(|it| it % period == 0)?;
        Some((total / period, per)).filter(|(requests, _)| *requests > 0)
    })
}

pub(super) fn buffering(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    for name in ["memRequestBodyBytes", "memResponseBodyBytes"] {
        fields.skip(name, "bodies are kept in memory");
    }
    for name in ["maxResponseBodyBytes", "retryExpression"] {
        if let Some(field) = fields.take_tuning(name) {
            field.refuse("responses are streamed", "use retry of a TrafficPolicy");
        }
    }
    let size = fields
        .number("maxRequestBodyBytes", BODY)
        .filter(|it| *it > 0);
    if let Some(size) = size.and_then(|it| u64::try_from(it).ok()) {
        let mut body = Map::new();
        put(&mut body, "maxSize", Some(routing::bytes(size)));
        parts.set(&fields, "requestBody", body);
    }
}

pub(super) fn compress(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let mut output = Map::new();
    let size = fields.number("minResponseBodyBytes", &format!("{COMPRESSION}.minSize"));
    put(
        &mut output,
        "minSize",
        size.filter(|it| *it > 0).map(|it| it.to_string()),
    );
    let given = fields.texts("encodings", &format!("{COMPRESSION}.types"));
    let known = [("gzip", "Gzip"), ("br", "Brotli"), ("zstd", "Zstd")];
    let types = known
        .iter()
        .filter(|(name, _)| given.is_empty() || given.iter().any(|it| it == name));
    put_list(
        &mut output,
        "types",
        types.map(|(_, kind)| Value::from(*kind)).collect(),
    );
    fields.skip(
        "defaultEncoding",
        "clients without Accept-Encoding get no compression",
    );
    for name in ["excludedContentTypes", "includedContentTypes"] {
        if let Some(field) = fields.take_tuning(name) {
            field.refuse("Sesame chooses the types", "remove it");
        }
    }
    parts.set(&fields, "compression", output);
}

pub(super) fn grpc_web(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    if let Some(field) = fields.take("allowOrigins") {
        field.refuse(
            "origins belong to the CORS filter",
            "use the headers middleware",
        );
    }
    parts.traffic.insert("grpcWeb".to_owned(), json!(true));
}

pub(super) fn retry(_: &mut Draft, parts: &mut RuleParts, mut fields: RemainingFields) {
    let mut output = Map::new();
    let attempts = fields
        .number("attempts", &format!("{RETRY}.attempts"))
        .unwrap_or(1);
    put(
        &mut output,
        "attempts",
        Some(attempts.saturating_sub(1).clamp(0, MAX_ATTEMPTS)),
    );
    if let Some(field) = fields.take_tuning("initialInterval") {
        let text = field.value().as_i64().map(|it| format!("{it}ms"));
        match duration(text.as_deref().unwrap_or(field.as_str())) {
            Ok(time) if time > 0 => {
                field.carry(&format!("{RETRY}.backoff"));
                put(&mut output, "backoff", Some(routing::duration(time)));
            }
            _ => field.refuse("expected a duration", "correct it"),
        }
    }
    for name in [
        "timeout",
        "status",
        "maxRequestBodyBytes",
        "disableRetryOnNetworkError",
        "retryNonIdempotentMethod",
    ] {
        if let Some(field) = fields.take_tuning(name) {
            field.refuse(
                "Sesame retries failed connections",
                "use retry of a TrafficPolicy",
            );
        }
    }
    parts.set(&fields, "retry", output);
}
