//! Single policies, in the forms that Envoy Gateway's users write.

use serde_json::{Value, json};

use super::super::Conversion;
use super::{converted, find, parse};

const BASE: &str = "
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

fn spec<'c>(conversion: &'c Conversion, kind: &str, name: &str) -> &'c Value {
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
            "clientValidation": {"caCertificateRefs": [{"kind": "ConfigMap", "name": "ca"}]},
        },
        "headers": {
            "lateResponseHeaders": {"set": [{"name": "x-frame-options", "value": "DENY"}]},
        },
    });
    let conversion = with_policy("ClientTrafficPolicy", "Gateway/edge", policy);
    let gateway = spec(&conversion, "Gateway", "edge");
    let options = json!({"projectsesame.io/min-version": "1.3", "projectsesame.io/alpn": "h2"});
    assert_eq!(gateway["listeners"][1]["tls"]["options"], options);
    assert!(gateway["listeners"][0]["tls"].is_null());
    let validation = json!({"validation": {
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
        "mode": "AllowValidOnly",
    }});
    assert_eq!(gateway["tls"]["frontend"]["default"], validation);
    let configuration = json!({
        "edge": {"proxyProtocol": {"mode": "Required"}, "http3": {"mode": "Enabled"}},
        "fleet": {"trustedHops": 1},
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
