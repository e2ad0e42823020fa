//! Single policies, in the forms that Envoy Gateway's users write.

use serde_json::{Value, json};

use super::super::{Conversion, as_table};
use super::{converted, find, parse};

pub(super) const BASE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: eg
  listeners:
  - {name: web, protocol: HTTP, port: 80}
  - name: secure
    protocol: HTTPS
    port: 443
    tls: {certificateRefs: [{name: edge}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
";

fn with_policy(kind: &str, target: &str, mut spec: Value) -> Conversion {
    let mut objects = parse(BASE);
    if !target.is_empty() {
        let (kind, name) = target.split_once('/').expect("a target");
        spec["targetRefs"] = json!([{
            "group": "gateway.networking.k8s.io", "kind": kind, "name": name,
        }]);
    }
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "it"},
        "spec": spec,
    }));
    converted(&objects, &[])
}

pub(super) fn spec<'c>(conversion: &'c Conversion, kind: &str, name: &str) -> &'c Value {
    let object = find(conversion, kind, name);
    &object.unwrap_or_else(|| panic!("{kind} {name}: {:?}", conversion.rows))["spec"]
}

#[test]
fn credentials_refer_to_secrets() {
    let policy = json!({
        "basicAuth": {"users": {"name": "users"}, "forwardUsernameHeader": "x-user"},
        "apiKeyAuth": {
            "credentialRefs": [{"group": "", "kind": "Secret", "name": "keys"}],
            "extractFrom": [{"headers": ["x-api-key"]}, {"params": ["key"]}],
            "forwardClientIDHeader": "x-client",
            "sanitize": true,
        },
    });
    let conversion = with_policy("SecurityPolicy", "HTTPRoute/shop", policy);
    let access = spec(&conversion, "AccessPolicy", "it");
    let basic = json!({
        "users": {"name": "users"}, "usernameHeader": "x-user", "forwardCredentials": true,
    });
    assert_eq!(access["basicAuth"], basic);
    let keys = json!({
        "credentials": [{"name": "keys"}],
        "sources": [{"header": "x-api-key"}, {"queryParameter": "key"}],
        "clientHeader": "x-client",
    });
    assert_eq!(access["apiKeyAuth"], keys);
}

#[test]
fn external_authorization_keeps_its_headers() {
    let policy = json!({"extAuth": {
        "headersToExtAuth": ["cookie"],
        "failOpen": true,
        "http": {
            "backendRefs": [{"name": "auth", "port": 9000}],
            "path": "/check",
            "headersToBackend": ["x-user"],
        },
    }});
    let conversion = with_policy("SecurityPolicy", "HTTPRoute/shop", policy);
    let external = json!({
        "protocol": "HTTP",
        "backendRef": {"name": "auth", "port": 9000},
        "http": {
            "path": "/check",
            "allowedHeaders": ["cookie"],
            "allowedResponseHeaders": ["x-user"],
        },
    });
    assert_eq!(spec(&conversion, "AccessPolicy", "it")["extAuth"], external);
}

#[test]
fn client_settings_change_gateway() {
    let policy = json!({
        "proxyProtocol": {},
        "http3": {},
        "clientIPDetection": {"xForwardedFor": {"numTrustedHops": 1}},
        "tls": {
            "minVersion": "1.3",
            "alpnProtocols": ["h2"],
            "ecdhCurves": ["X25519", "P-256"],
            "clientValidation": {"caCertificateRefs": [{"kind": "ConfigMap", "name": "ca"}]},
        },
        "headers": {
            "lateResponseHeaders": {"set": [{"name": "x-frame-options", "value": "DENY"}]},
        },
    });
    let conversion = with_policy("ClientTrafficPolicy", "Gateway/edge", policy);
    let gateway = spec(&conversion, "Gateway", "edge");
    let options = json!({
        "projectsesame.io/min-version": "1.3",
        "projectsesame.io/key-exchange-groups": "X25519,P-256",
        "projectsesame.io/alpn": "h2",
    });
    assert_eq!(gateway["listeners"][1]["tls"]["options"], options);
    assert!(gateway["listeners"][0]["tls"].is_null());
    let validation = json!({"validation": {
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
        "mode": "AllowValidOnly",
    }});
    assert_eq!(gateway["tls"]["frontend"]["default"], validation);
    let configuration = json!({
        "edge": {
            "clientAddress": {"hops": 1},
            "proxyProtocol": {"mode": "Required"},
            "http3": {"mode": "Enabled"},
        },
    });
    assert_eq!(
        spec(&conversion, "SesameConfiguration", "edge"),
        &configuration
    );
    let headers = &spec(&conversion, "TrafficPolicy", "it-headers")["headers"];
    assert_eq!(headers["response"]["set"][0]["name"], "x-frame-options");
}

#[test]
fn policy_for_gateway_reaches_its_services() {
    let policy = json!({
        "healthCheck": {"active": {"type": "HTTP", "http": {"path": "/ok"}, "interval": "3s"}},
        "circuitBreaker": {"maxConnections": 100, "maxParallelRequests": 0},
        "loadBalancer": {
            "type": "ConsistentHash",
            "consistentHash": {"type": "Header", "header": {"name": "x-user"}},
        },
        "rateLimit": {"local": {"rules": [{"limit": {"requests": 5, "unit": "Minute"}}]}},
    });
    let conversion = with_policy("BackendTrafficPolicy", "Gateway/edge", policy);
    let expected = json!({
        "targetRefs": [{"group": "", "kind": "Service", "name": "shop"}],
        "healthCheck": {"active": {"http": {"path": "/ok"}, "interval": "3s"}},
        "circuitBreaker": {"maxConnections": 100},
        "loadBalancer": {"type": "Maglev", "hash": [{"type": "Header", "name": "x-user"}]},
    });
    assert_eq!(spec(&conversion, "BackendPolicy", "it"), &expected);
    let limit = json!({"name": "limit-1", "requests": 5, "per": "Minute"});
    assert_eq!(
        spec(&conversion, "TrafficPolicy", "it")["rateLimits"][0],
        limit
    );
}

#[test]
fn responses_become_pages_and_faults() {
    let policy = json!({
        "compression": [{"type": "Brotli"}, {"type": "Gzip", "gzip": {}}],
        "responseOverride": [{
            "match": {"statusCodes": [
                {"type": "Value", "value": 404},
                {"type": "Range", "range": {"start": 500, "end": 599}},
            ]},
            "response": {"contentType": "text/html", "body": {"type": "Inline", "inline": "sorry"}},
        }],
        "faultInjection": {"abort": {"httpStatus": 503, "percentage": 10.0}},
    });
    let conversion = with_policy("BackendTrafficPolicy", "HTTPRoute/shop", policy);
    let traffic = spec(&conversion, "TrafficPolicy", "it");
    assert_eq!(traffic["compression"], json!({"types": ["Brotli", "Gzip"]}));
    let page = json!({
        "codes": ["404", "5xx"], "body": "sorry", "contentType": "text/html", "source": "All",
    });
    assert_eq!(traffic["errorPages"][0], page);
    let fault = json!({"abort": {"statusCode": 503, "percent": 10}});
    assert_eq!(traffic["fault"], fault);
}

#[test]
fn selector_lists_matching_routes() {
    let policy = json!({
        "targetSelectors": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
        "authorization": {"defaultAction": "Deny", "rules": [
            {"action": "Allow", "principal": {"clientCIDRs": ["10.0.0.0/8"]}},
        ]},
    });
    let conversion = with_policy("SecurityPolicy", "", policy.clone());
    let access = spec(&conversion, "AccessPolicy", "it");
    assert_eq!(access["targetRefs"][0]["name"], "shop");
    let mut unknown = policy;
    unknown["targetSelectors"][0]["matchExpressions"] = json!([{"key": "a"}]);
    let conversion = with_policy("SecurityPolicy", "", unknown);
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}

#[test]
fn body_limit_for_grpc_route_is_refused() {
    let mut objects = parse(BASE);
    objects.push(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GRPCRoute",
        "metadata": {"name": "calls"},
        "spec": {"parentRefs": [{"name": "edge"}], "rules": []},
    }));
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "BackendTrafficPolicy",
        "metadata": {"name": "it"},
        "spec": {
            "targetRefs": [{
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge",
            }],
            "requestBuffer": {"limit": "1Mi"},
        },
    }));
    let conversion = converted(&objects, &[]);
    assert!(find(&conversion, "GRPCRoute", "calls").is_none());
}

#[test]
fn hostile_gateway_is_left_out() {
    let mut objects = parse(BASE);
    for field in ["tls", "infrastructure"] {
        objects[0]["spec"][field] = json!("text");
    }
    objects.push(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "ClientTrafficPolicy",
        "metadata": {"name": "it"},
        "spec": {
            "targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"},
            "http3": {},
            "tls": {"clientValidation": {"caCertificateRefs": [{"name": "ca"}]}},
        },
    }));
    let conversion = converted(&objects, &[]);
    assert!(find(&conversion, "Gateway", "edge").is_none());
}

const BACKEND_TLS: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: partner}
spec: {endpoints: [{ip: {address: 192.0.2.10, port: 8443}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: partner}
spec:
  targetRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: partner, sectionName: '8443'}]
  validation: {hostname: partner.example.com, wellKnownCACertificates: System}
";

#[test]
fn backend_tls_names_the_port_of_the_service() {
    let mut objects = parse(BACKEND_TLS);
    let conversion = converted(&objects, &[]);
    let target = &spec(&conversion, "BackendTLSPolicy", "partner")["targetRefs"][0];
    assert_eq!(target["name"], "partner-backend");
    let port = &spec(&conversion, "Service", "partner-backend")["ports"][0];
    assert_eq!(target["sectionName"], port["name"]);
    objects[1]["spec"]["targetRefs"][0]["sectionName"] = json!("9443");
    assert!(!converted(&objects, &[]).is_complete());
}

#[test]
fn refused_backend_tls_stops_routes_to_its_service() {
    let mut objects = parse(BASE);
    let mut policy = parse(BACKEND_TLS).remove(1);
    policy["spec"]["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "shop"}]);
    policy["spec"]["validation"]["newProtection"] = json!({"mode": "Strict"});
    objects.push(policy);
    let conversion = converted(&objects, &[]);
    assert!(find(&conversion, "HTTPRoute", "shop").is_none());
}

#[test]
fn backend_without_valid_service_name_is_refused() {
    for name in ["api.v1", "1-api", &"a".repeat(56)] {
        let mut objects = parse(BACKEND_TLS);
        objects.truncate(1);
        objects[0]["metadata"]["name"] = json!(name);
        let conversion = converted(&objects, &[]);
        assert!(conversion.objects.is_empty(), "{name}");
    }
}

#[test]
fn grant_for_all_backends_does_not_permit_all_services() {
    let grant = |name: Option<&str>| {
        let mut objects = parse(BACKEND_TLS);
        objects.truncate(1);
        let mut to = json!({"group": "gateway.envoyproxy.io", "kind": "Backend"});
        if let Some(name) = name {
            to["name"] = json!(name);
        }
        let from = json!({
            "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop",
        });
        objects.push(json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1",
            "kind": "ReferenceGrant",
            "metadata": {"name": "it"},
            "spec": {"from": [from], "to": [to]},
        }));
        converted(&objects, &[])
    };
    let named = grant(Some("partner"));
    let to = &spec(&named, "ReferenceGrant", "it")["to"][0];
    assert_eq!(to["name"], "partner-backend");
    assert!(find(&grant(None), "ReferenceGrant", "it").is_none());
}

#[test]
fn selectors_add_each_object_once() {
    let policy = json!({
        "targetSelectors": [
            {"kind": "HTTPRoute", "matchLabels": {"app": "other"}},
            {"kind": "HTTPRoute"},
            {"kind": "HTTPRoute"},
        ],
        "basicAuth": {"users": {"name": "users"}},
    });
    let conversion = with_policy("SecurityPolicy", "HTTPRoute/shop", policy);
    assert!(conversion.is_complete());
    let refs = &spec(&conversion, "AccessPolicy", "it")["targetRefs"];
    assert_eq!(refs.as_array().map(Vec::len), Some(1), "{refs}");
}

#[test]
fn unusable_inline_key_set_stops_its_targets() {
    let public = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}]}"#;
    let shared = r#"{"keys":[{"kty":"oct","alg":"HS256","k":"aGlkZGVu"}]}"#;
    for (keys, complete) in [(public, true), (shared, false), ("{}", false)] {
        let provider = json!({"name": "a", "issuer": "a", "localJWKS": {"inline": keys}});
        let policy = json!({"jwt": {"providers": [provider]}});
        let conversion = with_policy("SecurityPolicy", "HTTPRoute/shop", policy);
        assert_eq!(conversion.is_complete(), complete, "{keys}");
        assert!(!as_table(&conversion).contains("aGlkZGVu"));
    }
}
