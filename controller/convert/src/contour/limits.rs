//! `rateLimitPolicy` becomes the rate limits of a TrafficPolicy.

use serde_json::{Map, Value, json};

use super::super::fields::RemainingFields;
use super::super::values::put;

const TO: &str = "TrafficPolicy rateLimits";
const DEFAULT_STATUS: i64 = 429;

/// Returns `None` if the limits of the host apply. A route's limits replace them.
pub(super) fn convert(parent: &mut RemainingFields, is_host: bool) -> Option<Vec<Value>> {
    let mut fields = parent.take("rateLimitPolicy")?.fields();
    if let Some(field) = fields.take("global") {
        let mut global = field.fields();
        if let Some(field) = global.take("disabled") {
            field.unneeded("Contour's global limits are not converted");
        }
        if let Some(field) = global.take("descriptors") {
            let reason = "Sesame does not support rate limit services";
            field.refuse(
                reason,
                "use limits of a TrafficPolicy, with scope Fleet if needed",
            );
        }
    }
    let mut local = fields.take("local")?.fields();
    let mut limit = Map::new();
    put(&mut limit, "name", Some("local"));
    put(&mut limit, "requests", local.number("requests", TO));
    let per = local.take("unit").map_or("Second", |field| {
        let per = match field.as_str() {
            "minute" => "Minute",
            "hour" => "Hour",
            "second" | "" => "Second",
            _ => {
                field.refuse("expected second, minute or hour", "correct the unit");
                return "Second";
            }
        };
        field.carry(TO);
        per
    });
    put(&mut limit, "per", Some(per));
    put(
        &mut limit,
        "burst",
        local.number("burst", TO).filter(|it| *it > 0),
    );
    if let Some(field) = local.take_tuning("responseStatusCode") {
        if *field.value() == json!(DEFAULT_STATUS) {
            field.unneeded("429 is the default");
        } else {
            field.differ(TO, "requests beyond the limit get 429");
        }
    }
    if let Some(field) = local.take_tuning("responseHeadersToAdd") {
        field.refuse(
            "rejections have no more headers",
            "set headers: of the limit instead",
        );
    }
    if is_host {
        let difference = "each HTTPRoute and each port counts separately";
        local.note_difference("requests", TO, difference);
    }
    Some(vec![limit.into()])
}
