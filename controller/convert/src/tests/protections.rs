//! A protection that cannot be converted stops the output of its targets.

use serde_json::{Value, json};

use super::super::{Conversion, as_markdown, as_table};
use super::{EXAMPLE, converted, find, parse};

pub(super) fn example_with(kind: &str, pointer: &str, value: Value) -> Vec<Value> {
    let mut objects = parse(EXAMPLE);
    let object = objects.iter_mut().find(|it| it["kind"] == *kind);
    let object = object.unwrap_or_else(|| panic!("{kind}"));
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent);
    let parent = parent.unwrap_or_else(|| panic!("{kind} {pointer}"));
    parent[name] = value;
    objects
}

fn names(conversion: &Conversion) -> Vec<String> {
    let objects = conversion.objects.iter();
    let name = |it: &Value| format!("{}/{}", it["kind"], it["metadata"]["name"]).replace('"', "");
    objects.map(name).collect()
}

/// Mappings in which an unknown field might protect something.
const PROTECTING: &[(&str, &str)] = &[
    ("SecurityPolicy", "/spec"),
    ("SecurityPolicy", "/spec/cors"),
    ("SecurityPolicy", "/spec/jwt"),
    ("SecurityPolicy", "/spec/jwt/providers/0"),
    ("SecurityPolicy", "/spec/jwt/providers/0/localJWKS"),
    ("SecurityPolicy", "/spec/jwt/providers/0/claimToHeaders/0"),
    ("SecurityPolicy", "/spec/authorization"),
    ("SecurityPolicy", "/spec/authorization/rules/0"),
    ("SecurityPolicy", "/spec/authorization/rules/0/principal"),
    (
        "SecurityPolicy",
        "/spec/authorization/rules/0/principal/jwt",
    ),
    (
        "SecurityPolicy",
        "/spec/authorization/rules/0/principal/jwt/claims/0",
    ),
    ("SecurityPolicy", "/spec/authorization/rules/0/operation"),
    ("SecurityPolicy", "/spec/targetRefs/0"),
    ("BackendTrafficPolicy", "/spec"),
    ("BackendTrafficPolicy", "/spec/rateLimit"),
    ("BackendTrafficPolicy", "/spec/rateLimit/local"),
    ("BackendTrafficPolicy", "/spec/rateLimit/local/rules/0"),
    (
        "BackendTrafficPolicy",
        "/spec/rateLimit/local/rules/0/limit",
    ),
    (
        "BackendTrafficPolicy",
        "/spec/rateLimit/local/rules/0/clientSelectors/0",
    ),
    (
        "BackendTrafficPolicy",
        "/spec/rateLimit/local/rules/0/clientSelectors/0/headers/0",
    ),
    ("BackendTrafficPolicy", "/spec/requestBuffer"),
    ("ClientTrafficPolicy", "/spec"),
    ("ClientTrafficPolicy", "/spec/path"),
    ("ClientTrafficPolicy", "/spec/headers"),
    ("ClientTrafficPolicy", "/spec/timeout/http"),
    ("HTTPRouteFilter", "/spec"),
    ("HTTPRouteFilter", "/spec/urlRewrite"),
    ("HTTPRouteFilter", "/spec/urlRewrite/path/replaceRegexMatch"),
    ("Backend", "/spec"),
    ("Backend", "/spec/endpoints/0"),
    ("EnvoyProxy", "/spec"),
    ("HTTPRoute", "/spec/rules/0/filters/0"),
];

#[test]
fn unknown_field_in_protection_stops_route() {
    for (kind, pointer) in PROTECTING {
        let field = format!("{pointer}/newProtection");
        let objects = example_with(kind, &field, json!({"mode": "Strict"}));
        let conversion = converted(&objects, &[]);
        assert!(!conversion.is_complete(), "{kind} {pointer}");
        assert!(
            find(&conversion, "HTTPRoute", "shop").is_none(),
            "{kind} {pointer}"
        );
        let names = names(&conversion);
        assert!(
            !names.contains(&"AccessPolicy/shop".to_owned()),
            "{kind} {pointer}: {names:?}"
        );
        let stopped = conversion.stopped.iter().map(|(id, _)| id.to_string());
        assert!(
            stopped.clone().any(|id| id == "HTTPRoute/shop/shop"),
            "{kind} {pointer}"
        );
    }
}

#[test]
fn unsupported_protection_stops_its_target() {
    let selector = json!([{"sourceCIDR": {"type": "Exact", "value": "192.0.2.0/24"}}]);
    let claim = json!([{"headers": [{"name": "X-User", "type": "Distinct"}]}]);
    let header = json!({"headers": [{"name": "x-user", "values": ["ann"]}]});
    let cases = [
        (
            "SecurityPolicy",
            "/spec/authorization/rules/0/principal",
            header,
        ),
        (
            "BackendTrafficPolicy",
            "/spec/rateLimit/local/rules/0/clientSelectors",
            claim,
        ),
        ("SecurityPolicy", "/spec/oidc", json!({"clientID": "shop"})),
        ("SecurityPolicy", "/spec/jwt/optional", json!(true)),
        (
            "SecurityPolicy",
            "/spec/jwt/providers/0/issuer",
            Value::Null,
        ),
        (
            "SecurityPolicy",
            "/spec/jwt/providers/0/claimToHeaders/0/header",
            json!("user"),
        ),
        (
            "SecurityPolicy",
            "/spec/cors/allowOrigins",
            json!(["https://a.example.com:*"]),
        ),
        ("SecurityPolicy", "/spec/authorization/rules", json!([])),
        (
            "SecurityPolicy",
            "/spec/targetRefs/0/kind",
            json!("Service"),
        ),
        (
            "BackendTrafficPolicy",
            "/spec/rateLimit/global",
            json!({"rules": []}),
        ),
        (
            "BackendTrafficPolicy",
            "/spec/rateLimit/local/rules/0/limit/unit",
            json!("Year"),
        ),
        (
            "BackendTrafficPolicy",
            "/spec/rateLimit/local/rules/0/clientSelectors",
            selector,
        ),
        (
            "BackendTrafficPolicy",
            "/spec/requestBuffer/limit",
            json!("100m"),
        ),
        (
            "ClientTrafficPolicy",
            "/spec/tls",
            json!({"clientValidation": {"optional": true}}),
        ),
    ];
    for (kind, pointer, value) in cases {
        let conversion = converted(&example_with(kind, pointer, value), &[]);
        assert!(!conversion.is_complete(), "{kind} {pointer}");
        let route = find(&conversion, "HTTPRoute", "shop");
        // A target of an unknown kind is not the route, but the policy is left out.
        let is_stopped = route.is_none() || pointer.ends_with("/kind");
        assert!(is_stopped, "{kind} {pointer}");
    }
}

#[test]
fn gateway_policy_stops_gateway_and_routes() {
    let target = json!([{
        "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge",
    }]);
    let mut objects = example_with("SecurityPolicy", "/spec/targetRefs", target);
    let policy = objects.iter_mut().find(|it| it["kind"] == "SecurityPolicy");
    policy.expect("a policy")["spec"]["oidc"] = json!({});
    let conversion = converted(&objects, &[]);
    for kind in ["Gateway", "HTTPRoute", "AccessPolicy", "TrafficPolicy"] {
        let left = conversion.objects.iter().any(|it| it["kind"] == *kind);
        assert!(!left, "{kind}: {:?}", names(&conversion));
    }
}

#[test]
fn accepted_loss_converts_the_rest() {
    let objects = example_with("SecurityPolicy", "/spec/oidc", json!({"clientID": "shop"}));
    for accepted in [
        "oidc",
        "SecurityPolicy/shop/shop",
        "SecurityPolicy/shop/shop:oidc",
    ] {
        let conversion = converted(&objects, &[accepted, "no-such-field"]);
        assert!(conversion.is_complete(), "{accepted}");
        assert!(find(&conversion, "HTTPRoute", "shop").is_some());
        let policy = find(&conversion, "AccessPolicy", "shop").expect("a policy");
        assert!(policy["spec"]["jwt"].is_object());
        assert_eq!(conversion.unused, ["no-such-field"]);
    }
    assert!(!converted(&objects, &["jwt"]).is_complete());
}

#[test]
fn tuning_loss_stops_nothing() {
    let settings = json!({"preconnect": {}});
    let objects = example_with("BackendTrafficPolicy", "/spec/connection", settings);
    let conversion = converted(&objects, &[]);
    assert!(conversion.is_complete());
    let rows = conversion.rows.iter().flat_map(|object| &object.rows);
    let refused = rows.filter(|row| row.verdict.word() == "refused");
    let paths: Vec<&str> = refused.map(|row| row.path.as_str()).collect();
    assert_eq!(paths, ["spec.connection"]);
}

#[test]
fn extension_stops_its_target() {
    let mut objects = parse(EXAMPLE);
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyExtensionPolicy",
        "metadata": {"name": "firewall", "namespace": "shop"},
        "spec": {
            "targetRefs": [{
                "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop",
            }],
            "wasm": [{"name": "waf"}],
        },
    }));
    assert!(find(&converted(&objects, &[]), "HTTPRoute", "shop").is_none());
    let accepted = converted(&objects, &["wasm"]);
    assert!(find(&accepted, "HTTPRoute", "shop").is_some());
}

#[test]
fn rival_policies_stop_their_target() {
    let mut objects = parse(EXAMPLE);
    let policy = objects.iter().find(|it| it["kind"] == "SecurityPolicy");
    let mut rival = policy.expect("a policy").clone();
    rival["metadata"]["name"] = json!("other");
    objects.push(rival);
    assert!(find(&converted(&objects, &[]), "HTTPRoute", "shop").is_none());
}

#[test]
fn networks_become_ip_filter() {
    let authorization = json!({
        "defaultAction": "Deny",
        "rules": [{"action": "Allow", "principal": {"clientCIDRs": ["192.0.2.0/24"]}}],
    });
    let objects = example_with("SecurityPolicy", "/spec/authorization", authorization);
    let conversion = converted(&objects, &[]);
    let policy = find(&conversion, "AccessPolicy", "shop").expect("a policy");
    assert_eq!(
        policy["spec"]["ipFilter"],
        json!({"allow": ["192.0.2.0/24"]})
    );
    assert!(policy["spec"]["authorization"].is_null());
}

#[test]
fn empty_protection_stops_route() {
    for part in ["basicAuth", "apiKeyAuth", "jwt", "extAuth", "authorization"] {
        let objects = example_with("SecurityPolicy", &format!("/spec/{part}"), json!({}));
        let conversion = converted(&objects, &[]);
        assert!(find(&conversion, "HTTPRoute", "shop").is_none(), "{part}");
    }
    for part in ["grpc", "http"] {
        let external = json!({part: {"headersToBackend": ["x-user"]}});
        let objects = example_with("SecurityPolicy", "/spec/extAuth", external);
        let conversion = converted(&objects, &["extAuth.grpc.headersToBackend"]);
        assert!(find(&conversion, "HTTPRoute", "shop").is_none(), "{part}");
    }
    let objects = example_with("SecurityPolicy", "/spec/targetRefs", json!([]));
    assert!(find(&converted(&objects, &[]), "HTTPRoute", "shop").is_none());
}

#[test]
fn unknown_version_stops_its_namespace() {
    let mut objects = parse(EXAMPLE);
    let policy = objects.iter_mut().find(|it| it["kind"] == "SecurityPolicy");
    policy.expect("a policy")["apiVersion"] = json!("gateway.envoyproxy.io/v1beta1");
    assert!(find(&converted(&objects, &[]), "HTTPRoute", "shop").is_none());
}

/// Adds a policy for the example's Gateway, or for the objects that `spec` selects.
fn with_security_policy(name: &str, namespace: &str, mut spec: Value) -> Vec<Value> {
    if spec["targetSelectors"].is_null() && spec["targetRefs"].is_null() {
        spec["targetRefs"] = json!([{
            "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge",
        }]);
    }
    let mut objects = parse(EXAMPLE);
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }));
    objects
}

#[test]
fn selector_across_namespaces_stops_its_routes() {
    let spec = json!({
        "targetSelectors": [{
            "group": "gateway.networking.k8s.io",
            "kind": "HTTPRoute",
            "namespaces": {"from": "All"},
        }],
        "basicAuth": {"users": {"name": "users"}},
    });
    let conversion = converted(&with_security_policy("login", "security", spec), &[]);
    assert!(!conversion.is_complete());
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}

#[test]
fn policy_for_service_stops_its_namespace() {
    let spec = json!({
        "targetRefs": [{"group": "", "kind": "Service", "name": "shop"}],
        "basicAuth": {"users": {"name": "users"}},
    });
    let conversion = converted(&with_security_policy("login", "shop", spec), &[]);
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}

#[test]
fn gateway_cors_skips_routes_with_own_policy() {
    let spec = json!({"cors": {"allowOrigins": ["*"]}});
    let mut objects = with_security_policy("any-origin", "shop", spec);
    let own = objects
        .iter_mut()
        .find(|it| it["metadata"]["name"] == "shop" && it["kind"] == "SecurityPolicy");
    let own = own.expect("a policy")["spec"].as_object_mut();
    own.expect("a mapping").remove("cors");
    let conversion = converted(&objects, &[]);
    let route = find(&conversion, "HTTPRoute", "shop").expect("a route");
    assert!(!route.to_string().contains("\"CORS\""), "{route}");
}

#[test]
fn rule_without_its_principal_permits_nobody() {
    let rules = json!([{
        "action": "Allow",
        "operation": {"methods": ["GET"]},
        "principal": {"jwt": {"provider": "corp", "scopes": ["admin"]}},
    }]);
    let authorization = json!({"defaultAction": "Deny", "rules": rules});
    let objects = example_with("SecurityPolicy", "/spec/authorization", authorization);
    let accepted = ["authorization.rules.principal.jwt.scopes"];
    let conversion = converted(&objects, &accepted);
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}

#[test]
fn report_names_one_object_to_accept() {
    let objects = example_with("SecurityPolicy", "/spec/oidc", json!({"<b>": "shop"}));
    let conversion = converted(&objects, &[]);
    let text = as_table(&conversion);
    let flag = "--accept-loss SecurityPolicy/shop/shop:oidc";
    assert!(text.contains(flag), "{text}");
    let objects = example_with("SecurityPolicy", "/spec/<b>", json!({}));
    let text = as_markdown(&converted(&objects, &[]));
    assert!(text.contains("&lt;b>") && !text.contains("<b>"), "{text}");
}

#[test]
fn object_of_another_group_replaces_no_policy() {
    let mut objects = parse(EXAMPLE);
    for kind in ["SecurityPolicy", "HTTPRoute", "Gateway"] {
        objects.push(json!({
            "apiVersion": "example.com/v1",
            "kind": kind,
            "metadata": {"name": "shop", "namespace": "shop"},
        }));
    }
    let conversion = converted(&objects, &[]);
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    assert!(find(&conversion, "AccessPolicy", "shop").is_some());
}

#[test]
fn inverted_header_of_rule_stops_route() {
    let header = json!({"name": "x-role", "values": ["guest"], "invert": true});
    let rules = json!([{"action": "Allow", "principal": {"headers": [header]}}]);
    let authorization = json!({"defaultAction": "Deny", "rules": rules});
    let objects = example_with("SecurityPolicy", "/spec/authorization", authorization);
    let conversion = converted(&objects, &[]);
    assert!(!conversion.is_complete());
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}
