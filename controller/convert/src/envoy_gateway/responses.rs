//! Compression, error pages and faults.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{put, put_list, put_map, size};
use super::filters::inline_body;
use super::traffic::whole;

const MAX_BODY: usize = 16_384;

pub(super) fn compression(items: Vec<TakenField>) -> Map<String, Value> {
    let mut output = Map::new();
    let mut types = Vec::new();
    for field in items {
        let mut fields = field.fields();
        if let Some(field) = fields.take("type")
            && ["Gzip", "Brotli", "Zstd"].contains(&field.as_str())
        {
            types.push(field.carry("TrafficPolicy compression.types"));
        }
        if let Some(field) = fields.take("minContentLength")
            && let Some(least) = size(field.value())
        {
            let difference = "the last value applies to all types";
            field.differ("TrafficPolicy compression.minSize", difference);
            put(&mut output, "minSize", Some(least));
        }
        for name in ["gzip", "brotli", "zstd"] {
            if let Some(field) = fields.take(name)
                && field.value() == &json!({})
            {
                field.unneeded("the default settings");
            }
        }
    }
    put_list(&mut output, "types", types.clone());
    if types.is_empty() { Map::new() } else { output }
}

/// Pages that cannot be converted are left out.
pub(super) fn pages(draft: &Draft, id: &ObjectId, items: Vec<TakenField>) -> Vec<Value> {
    let pages = items.into_iter().filter_map(|field| {
        let mut fields = field.fields();
        let mut output = Map::new();
        let mut matched = fields.section("match");
        let found = matched.list("statusCodes").into_iter().map(code);
        let codes: Option<Vec<String>> = found.collect();
        let mut response = fields.section("response");
        let to = |name: &str| format!("TrafficPolicy errorPages.{name}");
        let body = response.take("body");
        let body = body.and_then(|body| inline_body(draft, id, body.fields(), MAX_BODY));
        let kind = response.text("contentType", &to("contentType"));
        let status = response.number("statusCode", &to("statusCode"));
        let (codes, body) = (codes?, body?);
        put_list(&mut output, "codes", codes);
        put(&mut output, "body", Some(body));
        put(
            &mut output,
            "contentType",
            kind.or(Some("text/plain".to_owned())),
        );
        put(&mut output, "statusCode", status);
        // Envoy Gateway also replaces backends' responses.
        put(&mut output, "source", Some("All"));
        output
            .contains_key("codes")
            .then_some(Value::Object(output))
    });
    pages.collect()
}

fn code(field: TakenField) -> Option<String> {
    let value = field.value();
    let range = &value["range"];
    let code = match (
        value["value"].as_i64(),
        range["start"].as_i64(),
        range["end"].as_i64(),
    ) {
        (Some(code @ 400..=599), None, None) => code.to_string(),
        (None, Some(400), Some(499)) => "4xx".to_owned(),
        (None, Some(500), Some(599)) => "5xx".to_owned(),
        _ => {
            let reason = "Sesame replaces single statuses, 400-499 or 500-599";
            field.refuse(reason, "list the statuses");
            return None;
        }
    };
    field.carry("TrafficPolicy errorPages.codes");
    Some(code)
}

pub(super) fn fault(mut fields: RemainingFields) -> Map<String, Value> {
    let mut output = Map::new();
    let mut delay = fields.section("delay");
    let mut part = Map::new();
    let time = delay.text("fixedDelay", "TrafficPolicy fault.delay.duration");
    if let Some(time) = time
        && percent(&mut delay, &mut part)
    {
        put(&mut part, "duration", Some(time));
        put_map(&mut output, "delay", part);
    }
    let mut abort = fields.section("abort");
    let mut part = Map::new();
    let status = abort.number("httpStatus", "TrafficPolicy fault.abort.statusCode");
    if let Some(status) = status
        && percent(&mut abort, &mut part)
    {
        put(&mut part, "statusCode", Some(status));
        put_map(&mut output, "abort", part);
    }
    output
}

/// Returns false if the percentage cannot be converted.
fn percent(fields: &mut RemainingFields, part: &mut Map<String, Value>) -> bool {
    let Some(field) = fields.take("percentage") else {
        return true;
    };
    if let Some(percent @ 1..=100) = whole(&field) {
        field.carry("TrafficPolicy fault.percent");
        put(part, "percent", Some(percent));
        true
    } else {
        field.refuse("Sesame's percentages are whole numbers from 1", "round it");
        false
    }
}
