//! API objects that the benchmark creates and changes.

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;

pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const GATEWAY: &str =
    "/apis/gateway.networking.k8s.io/v1/namespaces/bench/gateways/bench";
pub(crate) const KEY: &str = "/api/v1/namespaces/bench/secrets/bench";

pub(crate) fn gateway() -> NamespacedName {
    NamespacedName::new(NAMESPACE, "bench")
}

pub(crate) fn route_path(route: usize) -> String {
    format!("/apis/gateway.networking.k8s.io/v1/namespaces/bench/httproutes/r{route}")
}

pub(crate) fn surroundings() -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "sesame"},
            "spec": {"controllerName": "projectsesame.io/gateway-controller"},
        }),
    ]
}

pub(crate) fn edge() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {"gatewayClassName": "sesame", "listeners": listeners("first")},
    })
}

/// The HTTPS listener's hostname contains the revision.
pub(crate) fn listeners(revision: &str) -> Value {
    json!([
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {
            "name": "https", "port": 443, "protocol": "HTTPS",
            "hostname": format!("{revision}.bench.example.com"),
            "tls": {"certificateRefs": [{"name": "bench"}]},
        },
    ])
}

pub(crate) fn route_objects(route: usize) -> [Value; 3] {
    let name = format!("s{route}");
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{name}-1"), "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.0.1"]}],
            "ports": [{"port": 8080}],
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": format!("r{route}"), "namespace": NAMESPACE},
            "spec": {
                "parentRefs": [{"name": "bench"}],
                "hostnames": [format!("h{route}.example.com")],
                "rules": rules(route, "first"),
            },
        }),
    ]
}

pub(crate) fn rules(route: usize, revision: &str) -> Value {
    json!([{
        "filters": [{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-revision", "value": revision}]},
        }],
        "backendRefs": [{"name": format!("s{route}"), "port": 80}],
    }])
}

pub(crate) fn watched(revision: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "watched", "namespace": sesame_tests::controller::NAMESPACE,
            "labels": {WATCHED_LABEL: "yes"},
        },
        "data": {"revision": revision, "filling": "x".repeat(bytes)},
    })
}

pub(crate) const WATCHED_LABEL: &str = "bench.example.com/watched";
