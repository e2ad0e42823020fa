//! Load balancing of a DestinationRule.

use serde_json::{Map, Value, json};
use sesame_resolver::http_proxies::duration;

use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::values::{put, put_list, put_map};

const BALANCER: &str = "BackendPolicy loadBalancer";

pub(super) fn balancer(mut fields: RemainingFields, settings: &mut Map<String, Value>) {
    let mut output = Map::new();
    if let Some(field) = fields.take("simple") {
        let kind = match field.as_str() {
            "LEAST_CONN" | "LEAST_REQUEST" => Some("LeastRequest"),
            "RANDOM" => Some("Random"),
            "ROUND_ROBIN" | "UNSPECIFIED" => None,
            _ => {
                field.refuse("Sesame has no such strategy", "use LEAST_REQUEST");
                return;
            }
        };
        put(&mut output, "type", kind);
        field.carry(&format!("{BALANCER}.type"));
    }
    if let Some(field) = fields.take("consistentHash") {
        hash(field.fields(), &mut output);
    }
    for name in ["warmupDurationSecs", "warmup"] {
        let Some(field) = fields.take(name) else {
            continue;
        };
        let text = field.value()["duration"]
            .as_str()
            .unwrap_or(field.as_str())
            .to_owned();
        match duration(&text) {
            Ok(window) => {
                field.differ(&format!("{BALANCER}.slowStart"), "traffic grows linearly");
                let start = json!({"window": routing::duration(window)});
                output.insert("slowStart".to_owned(), start);
                output.entry("type").or_insert_with(|| json!("RoundRobin"));
            }
            Err(why) => field.refuse_duration(&why),
        }
    }
    if let Some(field) = fields.take("localityLbSetting") {
        if field.value()["enabled"] == false {
            field.unneeded("endpoints of all zones are equal by default");
        } else {
            let difference = "only the zone of the host is preferred";
            field.differ(&format!("{BALANCER}.zonePreference"), difference);
            output.insert("zonePreference".to_owned(), json!({}));
            output.entry("type").or_insert_with(|| json!("RoundRobin"));
        }
    }
    put_map(settings, "loadBalancer", output);
}

fn hash(mut hash: RemainingFields, output: &mut Map<String, Value>) {
    let to = format!("{BALANCER}.hash");
    let mut keys = Vec::new();
    if let Some(name) = hash.text("httpHeaderName", &to) {
        keys.push(json!({"type": "Header", "name": name}));
    }
    if let Some(name) = hash.text("httpQueryParameterName", &to) {
        keys.push(json!({"type": "QueryParameter", "name": name}));
    }
    if hash.flag("useSourceIp", &to) == Some(true) {
        keys.push(json!({"type": "ClientAddress"}));
    }
    if let Some(field) = hash.take("httpCookie") {
        let mut cookie = field.fields();
        let name = cookie.text("name", &to);
        keys.push(json!({"type": "Cookie", "name": name}));
        for part in ["ttl", "path", "attributes"] {
            if let Some(field) = cookie.take(part) {
                let difference = "no cookie is set; for that, use sessionPersistence of the rule";
                field.differ(&to, difference);
            }
        }
    }
    let is_maglev = hash.has("maglev");
    for name in ["ringHash", "maglev", "minimumRingSize"] {
        hash.skip(name, "Sesame uses Envoy's default size");
    }
    put(
        output,
        "type",
        Some(if is_maglev { "Maglev" } else { "RingHash" }),
    );
    put_list(output, "hash", keys);
}
