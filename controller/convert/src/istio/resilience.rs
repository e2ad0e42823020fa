//! Timeouts, retries, faults and mirrors of routes.

use serde_json::{Map, Value, json};

use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, RuleDraft};
use super::super::values::{put, put_list, put_map};

const TIMEOUTS: &str = "HTTPRoute rules.timeouts";
const RETRY: &str = "TrafficPolicy retry";
const FAULT: &str = "TrafficPolicy fault";
const MAX_ATTEMPTS: i64 = 15;
const MAX_CODES: usize = 16;

/// Reads timeouts, retries and faults into a rule.
pub(super) fn convert(fields: &mut RemainingFields, rule: &mut RuleDraft) {
    let mut times = Map::new();
    let request = fields.duration("timeout", TIMEOUTS);
    put(&mut times, "request", request.map(routing::duration));
    if let Some(field) = fields.take_tuning("retries") {
        retries(
            field.fields(),
            rule,
            (request.unwrap_or_default(), &mut times),
        );
    }
    put_map(&mut rule.fields, "timeouts", times);
    if let Some(field) = fields.take_tuning("fault") {
        fault(field.fields(), rule);
    }
}

fn retries(
    mut fields: RemainingFields,
    rule: &mut RuleDraft,
    (request, times): (u64, &mut Map<String, Value>),
) {
    let mut output = Map::new();
    let given = fields.number("attempts", &format!("{RETRY}.attempts"));
    let attempts = given.unwrap_or(2).clamp(0, MAX_ATTEMPTS);
    if given.is_some_and(|it| it != attempts) {
        fields.note_difference("attempts", &format!("{RETRY}.attempts"), "at most 15");
    }
    put(&mut output, "attempts", Some(attempts));
    if let Some(time) = fields.duration("perTryTimeout", TIMEOUTS) {
        // The Gateway API requires that an attempt is not longer than the request.
        if time > 0 && (request == 0 || time <= request) {
            put(times, "backendRequest", Some(routing::duration(time)));
        }
    }
    let mut codes = match fields.take("retryOn") {
        Some(field) => statuses(field),
        None => vec![503],
    };
    codes.retain(|code| (400..600).contains(code));
    codes.sort_unstable();
    codes.dedup();
    codes.truncate(MAX_CODES);
    put_list(&mut output, "codes", codes);
    if let Some(time) = fields.duration("backoff", RETRY) {
        put(&mut output, "backoff", Some(routing::duration(time)));
    }
    for name in ["retryRemoteLocalities", "retryIgnorePreviousHosts"] {
        fields.skip(name, "each attempt chooses an endpoint again");
    }
    rule.traffic.insert("retry".to_owned(), output.into());
}

fn statuses(field: TakenField) -> Vec<i64> {
    let mut codes: Vec<i64> = Vec::new();
    let mut is_known = true;
    let given = field.as_str().to_owned();
    for condition in given.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        match condition {
            "5xx" => codes.extend([500, 502, 503, 504]),
            "gateway-error" => codes.extend([502, 503, 504]),
            "retriable-4xx" => codes.push(409),
            "connect-failure"
            | "refused-stream"
            | "reset"
            | "reset-before-request"
            | "retriable-status-codes"
            | "unavailable"
            | "cancelled" => {}
            other => match other.parse() {
                Ok(code) => codes.push(code),
                Err(_) => is_known = false,
            },
        }
    }
    let to = format!("{RETRY}.codes");
    if is_known {
        let difference =
            "5xx means 500, 502, 503 and 504; connections that fail are always retried";
        field.differ(&to, difference);
    } else {
        field.refuse(
            "Sesame has no such condition",
            "use statuses and failed connections",
        );
    }
    codes
}

fn fault(mut fields: RemainingFields, rule: &mut RuleDraft) {
    let mut output = Map::new();
    let mut delay = fields.section("delay");
    let mut part = Map::new();
    if let Some(time) = delay.duration("fixedDelay", FAULT) {
        put(&mut part, "duration", Some(routing::duration(time)));
        if percent(&mut delay, &mut part) {
            put_map(&mut output, "delay", part);
        }
    }
    let mut abort = fields.section("abort");
    let mut part = Map::new();
    if let Some(status) = abort.number("httpStatus", FAULT) {
        put(&mut part, "statusCode", Some(status));
        if percent(&mut abort, &mut part) {
            put_map(&mut output, "abort", part);
        }
    }
    for part in [&mut delay, &mut abort] {
        for name in ["percentage", "percent"] {
            part.skip(name, "there is no fault");
        }
    }
    put_map(&mut rule.traffic, "fault", output);
}

/// Returns false if the percentage cannot be converted.
fn percent(fields: &mut RemainingFields, part: &mut Map<String, Value>) -> bool {
    let given = fields.take("percentage").or_else(|| fields.take("percent"));
    let Some(field) = given else {
        return true;
    };
    if let Some(percent) = whole(&field) {
        field.carry(FAULT);
        put(part, "percent", Some(percent));
        return true;
    }
    field.refuse("Sesame's percentages are whole numbers from 1", "round it");
    false
}

/// Returns a whole percentage, which may be written as `{value: 50.0}`.
fn whole(field: &TakenField) -> Option<i64> {
    let value = field.value();
    let number = value.get("value").unwrap_or(value).to_string();
    let number: i64 = number.strip_suffix(".0").unwrap_or(&number).parse().ok()?;
    (1..=100).contains(&number).then_some(number)
}

/// Takes the mirrors of a route: destinations with their percentages.
pub(super) fn mirrors(fields: &mut RemainingFields) -> Vec<(TakenField, Option<i64>)> {
    let to = "HTTPRoute rules.filters.requestMirror";
    let mut found = Vec::new();
    let mut percentage = None;
    for name in ["mirrorPercentage", "mirrorPercent", "mirror_percent"] {
        if let Some(field) = fields.take_tuning(name) {
            percentage = whole(&field).or(percentage);
            match whole(&field) {
                Some(_) => drop(field.carry(to)),
                None => field.refuse("percentages are whole numbers from 1", "round it"),
            }
        }
    }
    found.extend(fields.take("mirror").map(|field| (field, percentage)));
    for field in fields.list("mirrors") {
        let mut mirror = field.fields();
        let percentage = mirror.take_tuning("percentage").and_then(|field| {
            let percent = whole(&field);
            match percent {
                Some(_) => drop(field.carry(to)),
                None => field.refuse("percentages are whole numbers from 1", "round it"),
            }
            percent
        });
        found.extend(mirror.take("destination").map(|field| (field, percentage)));
    }
    found
}

/// Returns the filter for a mirror.
pub(super) fn mirror_filter(backend: &Value, percentage: Option<i64>) -> Value {
    let mut mirror = json!({ "backendRef": backend });
    if let Some(percent) = percentage.filter(|it| *it < 100) {
        mirror["percent"] = json!(percent);
    }
    routing::filter("RequestMirror", mirror)
}
