//! Layers: who gets a host's requests and certificate, and how the others report it. Rows that
//! `tests/data/layers.yaml` cannot express are here.

use super::http_proxies::{NONE, ask, errors, proxy, root, send, warnings, with};
use super::ingresses::{CLASS, annotated, conditions, ingress, path, rule};
use super::router::{GET, Request, answer};
use super::tls::{certificate, https, secret};
use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use crate::Resolution;
use sesame_kinds::status::{Condition, ConditionType, Reason};

fn of_ingress(name: &str, path_: &str, service: &str) -> String {
    ingress(name, &rule("h.test", &[path(path_, "Exact", service)]))
}

fn of_route(name: &str, matches: &str, service: &str) -> String {
    let rule = format!("matches: [{matches}], backendRefs: [{{name: {service}, port: 80}}]");
    route(name, &format!("hostnames: [h.test]\nrules: [{{{rule}}}]"))
}

fn pair(name: &str) -> String {
    let pem = certificate(&["h.test"]);
    secret("web", name, &pem.certificate, &pem.key)
}

fn displaced(conditions: &[Condition]) -> Option<(Reason, &str)> {
    let mut conditions = conditions.iter();
    let found = conditions.find(|it| it.type_ == ConditionType::Displaced)?;
    Some((found.reason, &found.message))
}

fn certificate_of(resolution: &Resolution) -> String {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut listeners = ports.flat_map(|port| &port.listeners);
    let tls = listeners.find_map(|it| it.tls.as_ref()).expect("TLS");
    tls.keys.concat()
}

#[test]
fn overridden_ingress_says_who_gets_the_requests() {
    let exact = "{path: {type: Exact, value: /x}}";
    let to_proxy = "routes: [{conditions: [{exact: /x}], services: [{name: b, port: 80}]}]";
    for (winner, expected) in [
        (of_route("r", exact, "b"), "HTTPRoute/web/r"),
        (root("p", to_proxy), "HTTPProxy/web/p"),
        (of_ingress("a", "/x", "b"), "Ingress/web/a"),
    ] {
        let resolution = with(&[winner, of_ingress("i", "/x", "c")]);
        assert_eq!(ask(&resolution, "/x"), "web/b/80", "{expected}");
        let (reason, message) = displaced(conditions(&resolution, "i")).expect(expected);
        assert_eq!(reason, Reason::Overridden);
        assert!(message.contains(expected), "{message}");
        let accepted = holds(conditions(&resolution, "i"), ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::True, "{expected}");
    }
    let paths = [path("/x", "Exact", "a"), path("/x", "Exact", "b")];
    let resolution = with(&[ingress("i", &rule("h.test", &paths))]);
    assert_eq!(displaced(conditions(&resolution, "i")), None);
    let narrower = of_route("r", "{path: {type: Exact, value: /x/y}}", "b");
    let resolution = with(&[narrower, of_ingress("i", "/x", "c")]);
    assert_eq!(displaced(conditions(&resolution, "i")), None);
}

#[test]
fn ingress_reports_unused_secret() {
    let with_tls = |name: &str, path_: &str, pair: &str| {
        let tls = format!("tls: [{{hosts: [h.test], secretName: {pair}}}]");
        let rules = rule("h.test", &[path(path_, "Prefix", "c")]);
        ingress(name, &format!("{tls}\n{rules}"))
    };
    let of_proxy = "virtualhost: {fqdn: h.test, tls: {secretName: one}}\nroutes: [{services: \
                    [{name: a, port: 80}]}]";
    for (listener, winner, secret) in [
        (https("own", "h.test", "{name: one}"), String::new(), "one"),
        (String::new(), proxy("p", of_proxy), "one"),
        (String::new(), with_tls("a", "/a", "one"), "one"),
        (String::new(), String::new(), "two"),
    ] {
        let objects = [pair("one"), pair("two"), winner, with_tls("i", "/i", "two")].concat();
        let listeners = format!("{HTTP}\n{listener}");
        let resolution = resolved(&format!("{}{CLASS}{objects}", gateway(&listeners)));
        assert_eq!(certificate_of(&resolution), format!("Secret/web/{secret}"));
        assert_eq!(send(&resolution, 443, "/i", &[]), "web/c/80");
        let lost = displaced(conditions(&resolution, "i"));
        assert_eq!(lost.is_some(), secret == "one", "{lost:?}");
        if let Some((reason, message)) = lost {
            assert_eq!(reason, Reason::Overridden);
            assert!(message.contains("its Secret is not used"), "{message}");
        }
    }
}

#[test]
fn route_is_displaced_if_no_match_is_reached() {
    let (a, b) = ("{path: {value: /a}}", "{path: {value: /b}}");
    let first = of_route("a", a, "a");
    let whole = with(&[first.clone(), of_route("b", a, "b")]);
    let (reason, message) = displaced(whole.route_conditions("b")).expect("a condition");
    assert_eq!(reason, Reason::Overridden);
    assert!(message.contains("HTTPRoute/web/a"), "{message}");
    assert_eq!(displaced(whole.route_conditions("a")), None);
    let part = with(&[first, of_route("b", &format!("{a}, {b}"), "b")]);
    let conditions = part.route_conditions("b");
    assert_eq!(displaced(conditions), None);
    assert!(conditions[0].message.contains("is never reached"));
    // A hidden match is valid, so the specification's PartiallyInvalid does not apply.
    for conditions in [whole.route_conditions("b"), conditions] {
        let partly = holds(conditions, ConditionType::PartiallyInvalid);
        assert_eq!(partly, ConditionState::Absent);
    }
}

#[test]
fn certificate_of_gateway_or_set_overrides_proxy() {
    let spec = "virtualhost: {fqdn: h.test, tls: {secretName: two}}\nroutes: [{services: [{name: \
                a, port: 80}], permitInsecure: true}]";
    let objects = format!("{CLASS}{}{}{}", pair("g"), pair("two"), proxy("p", spec));
    let own = gateway(&format!("{HTTP}\n{}", https("own", "h.test", "{name: g}")));
    let allowed = "spec:\n  allowedListeners: {namespaces: {from: All}}\n";
    let set = "---\nkind: ListenerSet\nmetadata: {name: s, namespace: web}\nspec:\n  parentRef: \
               {name: gw}\n  listeners:\n  - {name: http, port: 80, protocol: HTTP, hostname: \
               h.test}\n  - {name: https, port: 443, protocol: HTTPS, hostname: h.test, tls: \
               {certificateRefs: [{name: g}]}}\n";
    let with_set = gateway(HTTP).replacen("spec:\n", allowed, 1) + set;
    let top = of_route("r", "{path: {value: /}}", "b");
    for (gateway, of_route) in [(own, "web/b/80"), (with_set, "web/a/80")] {
        let resolution = resolved(&format!("{gateway}{objects}"));
        assert_eq!(certificate_of(&resolution), "Secret/web/g");
        assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
        assert_eq!(warnings(&resolution, "p"), ["TLSError/Overridden"]);
        assert_eq!(errors(&resolution, "p"), NONE);
        // A route of the Gateway's listener loses the host to the ListenerSet.
        let resolution = resolved(&format!("{gateway}{objects}{top}"));
        assert_eq!(send(&resolution, 80, "/", &[]), of_route);
        let lost = displaced(resolution.route_conditions("r"));
        let expected = (of_route == "web/a/80").then_some(Reason::HostnameTaken);
        assert_eq!(lost.map(|(reason, _)| reason), expected);
    }
}

#[test]
fn grpc_route_precedes_exact_path_of_proxy() {
    let grpc = "---\nkind: GRPCRoute\nmetadata: {name: g, namespace: web}\nspec:\n  parentRefs: \
                [{name: gw}]\n  hostnames: [h.test]\n  rules: [{matches: [{method: {service: a.B, \
                method: C}}], backendRefs: [{name: c, port: 80}]}]\n";
    let spec = "routes: [{conditions: [{exact: /a.B/C}], services: [{name: b, port: 80, protocol: \
                h2c}]}]";
    let resolution = with(&[root("p", spec), grpc.to_owned()]);
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let routes = hosts.flat_map(|host| &host.routes);
    let routes: Vec<(&str, bool)> = routes.map(|it| (it.name.as_str(), it.grpc)).collect();
    let expected = [
        ("GRPCRoute/web/g/rules/0/matches/0", true),
        ("HTTPProxy/web/p/rules/0/matches/0", false),
    ];
    assert_eq!(routes, expected);
}

#[test]
fn layers_of_each_gateway_are_separate() {
    let second = gateway(HTTP).replace("name: gw,", "name: gw2,");
    let top = of_route("r", "{path: {type: Exact, value: /x}}", "b");
    let top = top.replace("{name: gw}", "{name: gw2}");
    let objects = format!("{CLASS}{}{top}", of_ingress("i", "/x", "c"));
    let resolution = resolved(&format!("{}{second}{objects}", gateway(HTTP)));
    let request = Request {
        host: "h.test",
        path: "/x",
        ..GET
    };
    let answers = resolution.gateways.iter();
    let answers: Vec<_> = answers.map(|it| answer(&it.snapshot, &request)).collect();
    assert_eq!(answers, ["web/c/80", "web/b/80"]);
    assert_eq!(displaced(conditions(&resolution, "i")), None);
}

#[test]
fn objects_are_withdrawn_with_their_class() {
    let to_proxy = "virtualhost: {fqdn: p.test}\nroutes: [{services: [{name: b, port: 80}]}]";
    let objects = [of_ingress("i", "/x", "c"), proxy("p", to_proxy)].concat();
    let served = resolved(&format!("{}{CLASS}{objects}", gateway(HTTP)));
    assert_eq!(ask(&served, "/x"), "web/c/80");
    assert_eq!(served.statuses.routes.len(), 2);
    let withdrawn = resolved(&format!("{}{objects}", gateway(HTTP)));
    assert_eq!(ask(&withdrawn, "/x"), "404");
    // Without a status, the controller clears the objects' addresses.
    assert!(withdrawn.statuses.routes.is_empty());
}

#[test]
fn challenge_of_another_ingress_is_not_redirected() {
    let force = "{ingress.kubernetes.io/force-ssl-redirect: \"true\"}";
    let rules = rule("h.test", &[path("/", "Prefix", "a")]);
    let tls = "tls: [{hosts: [h.test], secretName: one}]";
    let challenge = "/.well-known/acme-challenge/t";
    let resolution = with(&[
        pair("one"),
        annotated("app", force, &format!("{tls}\n{rules}")),
        of_ingress("acme", challenge, "b"),
    ]);
    assert_eq!(ask(&resolution, challenge), "web/b/80");
    assert_eq!(ask(&resolution, "/"), "301 https:0");
    assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80");
}
