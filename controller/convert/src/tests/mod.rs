//! Whole conversions.

mod client_policies;
mod equivalence;
mod fields;
mod foreign;
mod istio;
mod istio_policies;
mod istio_routes;
mod logins;
mod order;
mod policies;
mod precedence;
mod protections;
mod schemas;
mod traefik;
mod traefik_losses;

use serde_json::{Value, json};
use sesame_kinds::decode::{DecodeLimits, decode_value, parse_untyped, split};
use sesame_kinds::world::{Kind, World};
use sesame_resolver::{Options, ResolvedFor, Resolver};

use super::{Conversion, FORMATS, as_json, as_markdown, as_table, convert, files};

const EXAMPLE: &str = include_str!("example.yaml");

/// Objects that the cluster contains before the conversion.
const CLUSTER: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: shop, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
ports: [{name: http, port: 8080}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: issuer, namespace: shop}
data:
  jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}]}'
"#;

pub(super) fn parse(text: &str) -> Vec<Value> {
    let limits = DecodeLimits::default();
    let documents = split(text).into_iter();
    let values = documents.map(|it| parse_untyped(it.text, &limits));
    values.map(|value| value.expect("YAML")).collect()
}

pub(super) fn converted(objects: &[Value], accepted: &[&str]) -> Conversion {
    let accepted: Vec<String> = accepted.iter().map(|name| (*name).to_owned()).collect();
    convert(&FORMATS[0], objects, &accepted)
}

pub(super) fn find<'c>(conversion: &'c Conversion, kind: &str, name: &str) -> Option<&'c Value> {
    let mut objects = conversion.objects.iter();
    objects.find(|it| it["kind"] == *kind && it["metadata"]["name"] == *name)
}

fn world(objects: &[Value]) -> World {
    let mut world = World::default();
    for object in objects.iter().chain(&parse(CLUSTER)) {
        let text = |name: &str| object[name].as_str().expect("text");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let kind = Kind::find(version, kind).expect("a known kind");
        let decoded = decode_value(object.clone(), kind, version).expect("an object");
        assert!(decoded.unknown_fields.is_empty(), "{object}");
        world.insert(decoded.object);
    }
    world
}

#[test]
fn example_converts_and_resolves_without_problems() {
    let conversion = converted(&parse(EXAMPLE), &[]);
    let report = as_table(&conversion);
    assert!(conversion.is_complete(), "{report}");
    let options = Options {
        resolved_for: ResolvedFor::Cluster,
        ..Options::default()
    };
    let resolution = Resolver::default().resolve(&world(&conversion.objects), &options);
    assert!(resolution.problems.is_empty(), "{:?}", resolution.problems);
    assert_eq!(resolution.gateways.len(), 1);
    let mut seen = 0;
    for (kind, name, status) in resolution.statuses.objects() {
        for (_, conditions) in status.sections() {
            for condition in conditions.iter().filter(|it| it.is_fault()) {
                // No host and no Service exists in a test.
                let waits = ["Programmed", "AddressesAssigned"];
                let kind_of = condition.type_.as_str();
                assert!(waits.contains(&kind_of), "{kind} {name}: {condition:?}");
            }
            seen += conditions.len();
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn example_becomes_expected_objects() {
    let conversion = converted(&parse(EXAMPLE), &[]);
    let spec = |kind: &str, name: &str| {
        let object = find(&conversion, kind, name);
        object.unwrap_or_else(|| panic!("{kind} {name}"))["spec"].clone()
    };
    let access = spec("AccessPolicy", "shop");
    assert_eq!(
        access["jwt"]["providers"][0]["issuer"],
        "https://id.example.com"
    );
    assert_eq!(access["jwt"]["providers"][0]["forwardToken"], true);
    assert_eq!(
        access["authorization"]["rules"][0]["claims"][0]["name"],
        "groups"
    );
    let traffic = spec("TrafficPolicy", "shop");
    let retry = json!({"attempts": 3, "codes": [503], "backoff": "100ms"});
    assert_eq!(traffic["retry"], retry);
    assert_eq!(
        traffic["timeouts"],
        json!({"request": "10s", "backendRequest": "250ms"})
    );
    let keys = json!([{"type": "Header", "name": "x-tenant"}]);
    assert_eq!(traffic["rateLimits"][0]["keys"], keys);
    let backend = spec("BackendPolicy", "shop");
    assert_eq!(
        backend["connection"],
        json!({"timeout": "2s", "idleTimeout": "1h"})
    );
    let names: Vec<&Value> = (0..2).map(|i| &backend["targetRefs"][i]["name"]).collect();
    assert_eq!(names, ["partner-backend", "shop"]);
    let edge = spec("SesameConfiguration", "edge");
    let expected = json!({
        "escapedSlashes": "Reject",
        "headerUnderscores": "Drop",
        "requestTimeout": "60s",
    });
    assert_eq!(edge, json!({ "edge": expected }));
    let fleet = spec("SesameConfiguration", "proxies");
    assert_eq!(fleet["fleet"]["replicas"], 3);
    assert_eq!(fleet["fleet"]["drainSeconds"], 60);
    let route = spec("HTTPRoute", "shop");
    let rule = &route["rules"][0];
    assert_eq!(rule["filters"][0]["type"], "CORS");
    assert_eq!(rule["filters"][0]["cors"]["maxAge"], 86_400);
    assert_eq!(rule["filters"][1]["extensionRef"]["kind"], "RouteFilter");
    assert_eq!(route["rules"][1]["backendRefs"][0]["port"], 8080);
    let route = find(&conversion, "HTTPRoute", "shop").expect("a route");
    assert!(route["metadata"]["uid"].is_null() && route["status"].is_null());
}

#[test]
fn output_is_deterministic_and_reads_back() {
    let mut objects = parse(EXAMPLE);
    let first = converted(&objects, &[]);
    objects.reverse();
    let second = converted(&objects, &[]);
    assert_eq!(first.objects, second.objects);
    assert_eq!(as_json(&first), as_json(&second));
    let written: Vec<Value> = files(&first)
        .expect("files")
        .values()
        .flat_map(|text| parse(text))
        .collect();
    assert_eq!(written.len(), first.objects.len());
    for object in &first.objects {
        assert!(written.contains(object), "{object}");
    }
}

#[test]
fn secret_is_in_no_output_or_report() {
    let conversion = converted(&parse(EXAMPLE), &[]);
    let files = files(&conversion).expect("files");
    let files = files.values().cloned();
    let reports = [
        as_table(&conversion),
        as_markdown(&conversion),
        as_json(&conversion).to_string(),
    ];
    for text in files.chain(reports) {
        assert!(!text.contains("never-printed"), "{text}");
    }
    assert!(find(&conversion, "Secret", "credentials").is_none());
}
