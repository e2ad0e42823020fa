//! Istio's policies: which Gateways they apply to, and what odd rules mean.

use serde_json::{Value, json};

use super::super::{Conversion, as_table};
use super::equivalence::from;
use super::istio::{HELLO, workload};
use super::{find, parse};

const TOKENS: &str = "
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: istio-system}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  jwtRules: [{issuer: 'https://id.example.com', jwksUri: 'https://id.example.com/jwks.json'}]
---
";

fn policy(namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p, namespace: \
         {namespace}}}\nspec: {{{spec}}}\n---\n"
    )
}

fn istio(text: &str, accepted: &[&str]) -> Conversion {
    from("istio", &parse(text), accepted)
}

fn is_stopped(conversion: &Conversion) -> bool {
    let mut objects = conversion.objects.iter();
    !conversion.is_complete() && !objects.any(|it| it["kind"] == "HTTPRoute")
}

fn rules(conversion: &Conversion, name: &str) -> Vec<Value> {
    let policy = find(conversion, "AccessPolicy", name);
    let policy = policy.unwrap_or_else(|| panic!("{name}: {}", as_table(conversion)));
    let rules = policy["spec"]["authorization"]["rules"].as_array();
    rules.expect("rules").clone()
}

#[test]
fn odd_rule_stops_routes() {
    for rule in [
        "to: [{operation: {paths: /public}}]",
        "to: [{operation: {methods: GET}}]",
        "to: [{operation: {hosts: a.example.com}}]",
        "to: [{operation: {paths: [7]}}]",
        "to: [{operation: {}}]",
        "from: [{source: {ipBlocks: 10.0.0.0/8}}]",
        "from: [{source: {ipBlocks: [10.0.0.0/8], requestPrincipals: '*'}}]",
        "from: [{source: {notRequestPrincipals: [7]}}]",
        "when: [{values: [a]}]",
        "when: [{key: 'request.headers[x-a]'}]",
        "when: [{key: 'request.auth.claims[https://example.com/role]', values: [guest]}]",
        "when: [{key: 'request.auth.claims[role', values: [guest]}]",
    ] {
        for action in ["ALLOW", "DENY"] {
            let spec = format!("action: {action}, rules: [{{{rule}}}]");
            let text = format!("{HELLO}{TOKENS}{}", policy("istio-system", &spec));
            assert!(is_stopped(&istio(&text, &[])), "{action} {rule}");
        }
    }
}

#[test]
fn empty_list_of_rule_is_unset() {
    let spec = "action: DENY, rules: [{from: [{source: {ipBlocks: [192.0.2.0/24], \
        requestPrincipals: []}}], to: [{operation: {notPaths: []}}]}]";
    let text = format!("{HELLO}{TOKENS}{}", policy("istio-system", spec));
    let conversion = istio(&text, &[]);
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    let rules = rules(&conversion, "ingressgateway-istio-system-p");
    assert_eq!(
        rules,
        [json!({"action": "Deny", "clients": ["192.0.2.0/24"]})]
    );
}

#[test]
fn exception_for_all_permits_nobody() {
    for rule in [
        "when: [{key: request.auth.principal, notValues: ['*']}]",
        "from: [{source: {notRequestPrincipals: ['*', 'https://id.example.com/ann']}}]",
    ] {
        let text = |action| {
            let spec = format!("action: {action}, rules: [{{{rule}}}]");
            format!("{HELLO}{TOKENS}{}", policy("istio-system", &spec))
        };
        let conversion = istio(&text("ALLOW"), &[]);
        let rules = rules(&conversion, "ingressgateway");
        assert!(rules.iter().all(|it| it["action"] == "Deny"), "{rules:?}");
        // Requests without a token get 401 in any case.
        let conversion = istio(&text("DENY"), &[]);
        let denies = find(&conversion, "AccessPolicy", "ingressgateway-istio-system-p");
        assert!(conversion.is_complete() && denies.is_none());
    }
}

#[test]
fn tokens_of_another_gateway_permit_nobody() {
    let other = HELLO
        .replace("name: hello,", "name: other,")
        .replace("istio: ingressgateway", "istio: internal")
        .replace("gateways: [hello]", "gateways: [other]");
    let text = |action, list| {
        let spec = format!("action: {action}, rules: [{{from: [{{source: {{{list}: ['*']}}}}]}}]");
        format!("{HELLO}{other}{TOKENS}{}", policy("istio-system", &spec))
    };
    assert!(is_stopped(&istio(
        &text("DENY", "notRequestPrincipals"),
        &[]
    )));
    let allow = text("ALLOW", "requestPrincipals");
    assert!(is_stopped(&istio(&allow, &[])));
    let accepted = istio(&allow, &["rules.from.source.requestPrincipals"]);
    assert_eq!(rules(&accepted, "ingressgateway")[0]["action"], "Allow");
    assert_eq!(rules(&accepted, "internal")[0]["action"], "Deny");
}

#[test]
fn unclear_reach_of_policy_stops_routes() {
    let cart = workload("edge", "app: cart");
    let root = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: edge}\n\
        data: {mesh: 'rootNamespace: edge'}\n---\n";
    let gateway = workload("ingress", "istio: ingressgateway, app: front");
    let none = String::new();
    for (namespace, selector, objects, expected) in [
        ("edge", "", &none, true),
        ("edge", "", &cart, false),
        ("edge", "", &gateway, false),
        ("edge", "", &format!("{cart}{root}"), true),
        ("edge", "", &format!("{gateway}{root}"), true),
        ("edge", "app: cart", &none, true),
        ("edge", "app: cart", &cart, false),
        ("istio-system", "app: cart", &cart, false),
        ("ingress", "app: front", &none, true),
        ("ingress", "app: front", &gateway, true),
        ("hello", "istio: egressgateway", &none, false),
        ("hello", "app: istio-ingressgateway", &none, true),
    ] {
        let selector = match selector {
            "" => String::new(),
            labels => format!("selector: {{matchLabels: {{{labels}}}}}, "),
        };
        let spec = format!("{selector}action: CUSTOM, provider: {{name: x}}, rules: [{{}}]");
        let text = format!("{HELLO}{objects}{}", policy(namespace, &spec));
        let conversion = istio(&text, &[]);
        assert_eq!(
            is_stopped(&conversion),
            expected,
            "{namespace} {selector} {}",
            as_table(&conversion)
        );
    }
}

#[test]
fn usual_label_selects_gateway_pods() {
    let spec = "selector: {matchLabels: {app: istio-ingress}}, action: DENY, rules: [{to: \
        [{operation: {paths: [/admin]}}]}]";
    let hello = HELLO.replace("istio: ingressgateway", "istio: ingress");
    let conversion = istio(&(hello + &policy("istio-ingress", spec)), &[]);
    let rules = rules(&conversion, "ingress-istio-ingress-p");
    assert_eq!(rules[0]["action"], "Deny");
}

#[test]
fn policy_for_connections_stops_their_routes() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: db, namespace: hello}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 5432, name: db, protocol: TCP}, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: hello}
spec: {hosts: ['*'], gateways: [db], tcp: [{route: [{destination: {host: db, port: {number: 5432}}}]}]}
---
";
    for (spec, is_written) in [
        ("", false),
        (
            "rules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]",
            false,
        ),
        ("action: DENY", true),
        (
            "action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]",
            false,
        ),
    ] {
        let text = format!("{HELLO}{objects}{}", policy("istio-system", spec));
        let conversion = istio(&text, &[]);
        let route = find(&conversion, "TCPRoute", "db");
        assert_eq!(route.is_some(), is_written, "{spec}");
        assert!(conversion.is_complete() == is_written, "{spec}");
        let accepted = istio(&text, &["VirtualService.networking.istio.io/hello/db:tcp"]);
        assert!(accepted.is_complete(), "{}", as_table(&accepted));
    }
}

#[test]
fn gateways_with_other_labels_stay_apart() {
    let mut text = String::new();
    for (env, network) in [("internal", "10.0.0.0/8"), ("public", "0.0.0.0/0")] {
        text += &HELLO
            .replace("name: hello,", &format!("name: {env},"))
            .replace("gateways: [hello]", &format!("gateways: [{env}]"))
            .replace("istio: ingressgateway", &format!("istio: edge, env: {env}"));
        let spec = format!(
            "selector: {{matchLabels: {{env: {env}}}}}, rules: [{{from: [{{source: {{ipBlocks: [{network}]}}}}]}}]"
        );
        text += &policy("istio-system", &spec).replace("name: p", &format!("name: {env}"));
    }
    let conversion = istio(&text, &[]);
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    let clients = |name| {
        let rules = rules(&conversion, name);
        assert_eq!(rules.len(), 1, "{rules:?}");
        rules[0]["clients"].clone()
    };
    assert_eq!(clients("edge"), json!(["10.0.0.0/8"]));
    assert_eq!(clients("edge-2"), json!(["0.0.0.0/0"]));
    let route = find(&conversion, "HTTPRoute", "public").expect("a route");
    assert_eq!(route["spec"]["parentRefs"][0]["name"], "edge-2");
}
