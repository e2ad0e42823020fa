//! Traefik's objects.

use serde_json::json;

use super::equivalence::from;
use super::foreign::{Source, summary};
use super::{find, parse};

pub(super) const SOURCE: Source = Source {
    format: "traefik",
    class: "traefik",
    objects: include_str!("traefik.yaml"),
    fields: include_str!("traefik-fields.txt"),
};
const EXAMPLES: &str = include_str!("traefik-examples.yaml");

#[test]
fn every_field_has_a_verdict() {
    SOURCE.every_field_has_a_verdict(180);
}

#[test]
fn unknown_field_stops_routes() {
    SOURCE.unknown_field_has_a_verdict(&["customRequestHeaders"]);
}

#[test]
fn lost_protection_is_found() {
    SOURCE.finds_every_lost_protection(&["Middleware"]);
}

#[test]
fn rule_becomes_matches_in_order_of_priority() {
    let conversion = from("traefik", &parse(SOURCE.objects), &[]);
    let route = find(&conversion, "HTTPRoute", "shop").expect("a route");
    let rules = route["spec"]["rules"].as_array().expect("rules");
    let api = rules
        .iter()
        .find(|it| it["backendRefs"][1]["name"] == "canary")
        .expect("a rule");
    let matches = api["matches"].as_array().expect("matches");
    assert!(
        matches.iter().all(|it| !it["method"].is_null()),
        "{matches:?}"
    );
    // The rest of the text prefix has the same limits, but is not rewritten.
    let rest = rules
        .iter()
        .flat_map(|it| it["matches"].as_array().expect("matches"));
    let rest = rest.filter(|it| it["path"]["type"] == "RegularExpression");
    let rest: Vec<_> = rest.map(|it| it["path"]["value"].clone()).collect();
    assert!(
        rest.contains(&json!("/admin[^/].*")) && rest.contains(&json!("/api[^/].*")),
        "{rest:?}"
    );
}

#[test]
fn http_route_only_redirects() {
    let conversion = from("traefik", &parse(SOURCE.objects), &[]);
    let route = find(&conversion, "HTTPRoute", "plain").expect("a route");
    let rule = &route["spec"]["rules"][0];
    assert_eq!(
        rule["filters"][0]["requestRedirect"],
        json!({"scheme": "https", "statusCode": 308})
    );
    assert!(rule["backendRefs"].is_null());
}

fn is_stopped(rule: &str, more: &str) -> bool {
    let text = format!(
        "apiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: {{name: a, namespace: a}}\nspec: \
         {{entryPoints: [web], routes: [{{match: '{rule}', kind: Rule, services: [{{name: a, port: \
         80}}]}}]}}\n{more}"
    );
    let conversion = from("traefik", &parse(&text), &[]);
    let written = conversion
        .objects
        .iter()
        .any(|it| it["kind"] == "HTTPRoute");
    assert_eq!(written, conversion.is_complete(), "{rule}");
    !written
}

#[test]
fn rule_that_cannot_be_expressed_stops_its_route() {
    for rule in [
        "!Host(`a`)",
        "Host(`a`) && !Path(`/b`)",
        "Host(`a`) && Unknown(`b`)",
        "HostRegexp(`(a|b)[.]c`)",
        "Host(`a`) && Path(`/{id:[0-9]+}`)",
        "Host(`a`",
    ] {
        assert!(is_stopped(rule, ""), "{rule}");
    }
    for rule in [
        "Host(`a`)",
        "Host(`a`) || Host(`b`) && Path(`/c`)",
        "ClientIP(`10.0.0.0/8`)",
    ] {
        assert!(!is_stopped(rule, ""), "{rule}");
    }
}

#[test]
fn wider_rule_of_higher_priority_stops_host() {
    let wider = "---\napiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: {name: acme, namespace: \
                 a}\nspec: {entryPoints: [web], routes: [{match: 'PathPrefix(`/.well-known`)', priority: \
                 1000, kind: Rule, services: [{name: acme, port: 80}]}]}\n";
    assert!(is_stopped("Host(`a`)", wider));
    assert!(!is_stopped("Host(`a`)", &wider.replace("1000", "1")));
}

#[test]
fn connections_without_a_known_port_are_refused() {
    for kind in ["IngressRouteTCP", "IngressRouteUDP"] {
        let text = format!(
            "apiVersion: traefik.io/v1alpha1\nkind: {kind}\nmetadata: {{name: dns, namespace: a}}\nspec: \
             {{entryPoints: [dns], routes: [{{services: [{{name: dns, port: 53, weight: 1}}]}}]}}\n"
        );
        let conversion = from("traefik", &parse(&text), &[]);
        assert!(!conversion.is_complete(), "{kind}");
    }
}

#[test]
fn verdicts_on_public_examples_are_current() {
    let path = "controller/convert/src/tests/traefik-examples.txt";
    sesame_kit::generated::check(path, |_| summary("traefik", EXAMPLES));
}
