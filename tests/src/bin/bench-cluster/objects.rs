//! API objects that the benchmark creates and changes.

use std::net::SocketAddr;

use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const GATEWAY: &str =
    "/apis/gateway.networking.k8s.io/v1/namespaces/bench/gateways/bench";

pub(crate) fn hostname(route: usize) -> String {
    format!("h{route}.bench.example.com")
}

pub(crate) fn service(route: usize) -> String {
    format!("s{route}")
}

pub(crate) fn other_service(route: usize) -> String {
    format!("t{route}")
}

pub(crate) fn endpoint_set(service: &str) -> String {
    format!("Service/{NAMESPACE}/{service}/80")
}

pub(crate) fn route_path(route: usize) -> String {
    format!("/apis/gateway.networking.k8s.io/v1/namespaces/bench/httproutes/r{route}")
}

pub(crate) fn slice_path(route: usize) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices/s{route}-1")
}

pub(crate) fn edge() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "sesame"},
            "spec": {"controllerName": "projectsesame.io/gateway-controller"},
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "bench", "namespace": NAMESPACE},
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        }),
    ]
}

pub(crate) fn backends(service: &str, endpoint: SocketAddr) -> [Value; 2] {
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "namespace": NAMESPACE},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{service}-1"), "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [endpoint.ip()]}],
            "ports": [{"port": endpoint.port()}],
        }),
    ]
}

pub(crate) fn endpoints(endpoint: SocketAddr) -> Value {
    json!({"endpoints": [{"addresses": [endpoint.ip()]}], "ports": [{"port": endpoint.port()}]})
}

pub(crate) fn route(route: usize, revision: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": format!("r{route}"), "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": "bench"}],
            "hostnames": [hostname(route)],
            "rules": rules(&service(route), revision),
        },
    })
}

pub(crate) fn rules(service: &str, revision: &str) -> Value {
    json!([{
        "filters": [{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-revision", "value": revision}]},
        }],
        "backendRefs": [{"name": service, "port": 80}],
    }])
}
