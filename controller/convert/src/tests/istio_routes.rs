//! Istio's routes: their order, their Gateways, and TLS to their backends.

use serde_json::Value;

use super::super::{Conversion, as_table};
use super::equivalence::from;
use super::istio::{HELLO, without_routes};
use super::{find, parse};

const ROUTE: &str = "route: [{destination: {host: hello, port: {number: 80}}}]";
const CLOSED: &str = "directResponse: {status: 403}";

fn istio(text: &str) -> Conversion {
    let conversion = from("istio", &parse(text), &[]);
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    conversion
}

fn service(metadata: &str, http: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{{metadata}}}\nspec: {{hosts: \
         ['*'], gateways: [hello/hello], http: [{http}]}}\n---\n"
    )
}

/// Returns the Gateway of the first example.
fn gateway() -> &'static str {
    HELLO.split_inclusive("---\n").next().expect("a Gateway")
}

/// Returns the paths of rules with or without backends.
fn paths(conversion: &Conversion, is_closed: bool) -> Vec<&Value> {
    let routes = conversion
        .objects
        .iter()
        .filter(|it| it["kind"] == "HTTPRoute");
    let rules = routes.flat_map(|it| it["spec"]["rules"].as_array().into_iter().flatten());
    let rules = rules.filter(|it| it["backendRefs"].is_null() == is_closed);
    let matches = rules.flat_map(|it| it["matches"].as_array().into_iter().flatten());
    matches.map(|it| &it["path"]["value"]).collect()
}

#[test]
fn rule_for_all_requests_comes_last() {
    let old = service(
        "name: a, namespace: hello, creationTimestamp: '2024-01-01T00:00:00Z'",
        &format!("{{{ROUTE}}}, {{match: [{{uri: {{prefix: /b}}}}], {CLOSED}}}"),
    );
    let new = service(
        "name: b, namespace: hello, creationTimestamp: '2025-01-01T00:00:00Z'",
        &format!("{{match: [{{uri: {{prefix: /admin}}}}], {CLOSED}}}"),
    );
    let conversion = istio(&(gateway().to_owned() + &old + &new));
    let closed = paths(&conversion, true);
    assert!(closed.iter().any(|it| *it == "/admin"), "{closed:?}");
    // The VirtualService's own rule for all requests came first.
    assert!(!closed.iter().any(|it| *it == "/b"), "{closed:?}");
}

#[test]
fn services_of_equal_age_sort_by_name() {
    let rule = format!("{{match: [{{uri: {{exact: /a}}}}], {ROUTE}}}");
    let text = gateway().to_owned()
        + &service("name: x, namespace: a", &rule)
        + &service("name: w, namespace: b", &rule);
    let conversion = istio(&text);
    assert!(find(&conversion, "HTTPRoute", "w").is_some());
    assert!(find(&conversion, "HTTPRoute", "x").is_none());
}

#[test]
fn match_applies_to_named_gateways() {
    for matched in [
        "[]",
        "[{uri: {prefix: /admin}, gateways: [hello/hello]}]",
        "[{uri: {prefix: /admin}, gateways: [./hello, mesh]}]",
        "[{uri: {prefix: /admin}, gateways: [hello.hello.svc.cluster.local]}]",
        "[{uri: {prefix: /admin}, gateways: []}]",
        "[{uri: {prefix: /admin}, gateways: [hello], sourceLabels: {app: cart}}]",
        "[{uri: {prefix: /admin}, sourceLabels: {}, sourceNamespace: ''}]",
    ] {
        let rules = format!("{{match: {matched}, {CLOSED}}}, {{{ROUTE}}}");
        let text = gateway().to_owned() + &service("name: hello, namespace: hello", &rules);
        let conversion = istio(&text);
        let closed = paths(&conversion, true);
        assert!(!closed.is_empty(), "{matched}");
        let open = paths(&conversion, false);
        assert_eq!(open.is_empty(), matched == "[]", "{matched}");
    }
}

#[test]
fn stream_reaches_only_its_gateways() {
    let server = "servers: [{port: {number: 5432, name: db, protocol: TCP}, hosts: ['*']}]";
    let gateway = |name: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: \
             hello}}\nspec: {{selector: {{istio: {name}}}, {server}}}\n---\n"
        )
    };
    for (gateways, is_written) in [
        ("[mesh]", false),
        ("[internal]", false),
        ("[hello/public, internal]", true),
    ] {
        let text = service("name: db, namespace: hello", "").replace(
            "gateways: [hello/hello], http: []",
            &format!(
                "gateways: [mesh, public, internal], tcp: [{{match: [{{gateways: {gateways}}}], {ROUTE}}}]"
            ),
        );
        let text = text + &gateway("public") + &gateway("internal");
        let conversion = from("istio", &parse(&text), &[]);
        let route = find(&conversion, "TCPRoute", "db");
        assert_eq!(route.is_some(), is_written, "{gateways}");
    }
}

#[test]
fn subset_inherits_tls_of_its_host() {
    let objects = "
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: hello}
spec: {selector: {app: hello}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: hello, namespace: hello}
spec:
  host: hello
  trafficPolicy: {tls: {mode: SIMPLE}, loadBalancer: {simple: LEAST_REQUEST}}
  subsets: [{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]
---
";
    let text = HELLO.replace("{host: hello,", "{host: hello, subset: v1,") + objects;
    let conversion = istio(&text);
    let targets = |kind: &str| {
        let objects = conversion.objects.iter();
        let own = objects.filter(|it| it["kind"] == kind);
        own.map(|it| it["spec"].to_string()).collect::<String>()
    };
    assert!(targets("BackendTLSPolicy").contains("hello-v1"));
    let own = targets("BackendPolicy");
    assert!(own.contains("Random") && own.contains("hello-v1"), "{own}");
}

#[test]
fn tls_of_wildcard_stops_its_routes() {
    for (host, policy, expected) in [
        (
            "*.hello.svc.cluster.local",
            "trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}",
            true,
        ),
        (
            "*.local",
            "subsets: [{name: v1, trafficPolicy: {tls: {mode: SIMPLE}}}]",
            true,
        ),
        (
            "*.cart.svc.cluster.local",
            "trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}",
            false,
        ),
        (
            "*.local",
            "trafficPolicy: {loadBalancer: {simple: RANDOM}}",
            false,
        ),
    ] {
        let rule = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: tls, namespace: \
             istio-system}}\nspec: {{host: '{host}', {policy}}}\n"
        );
        assert_eq!(
            without_routes(&format!("{HELLO}{rule}")),
            expected,
            "{host} {policy}"
        );
    }
}
