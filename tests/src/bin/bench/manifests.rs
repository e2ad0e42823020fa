//! The manifests that are measured: values, serialised.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

pub(crate) fn hostname(route: usize) -> String {
    format!("h{route}.bench.example.com")
}

/// The name of a Service's endpoint set, as it reaches Envoy.
pub(crate) fn endpoint_set(route: usize) -> String {
    format!("Service/bench/s{route}/80")
}

pub(crate) fn write_all(dir: &Path, routes: usize, port: u16) -> anyhow::Result<()> {
    // Nothing listens there, and nothing is sent there.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    write_access_log(dir, &json!({}), nobody)?;
    write(
        dir,
        "gateway.yaml",
        &[
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": {"name": "sesame"},
                "spec": {"controllerName": "projectsesame.io/gateway-controller"},
            }),
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "bench", "namespace": "bench"},
                "spec": {
                    "gatewayClassName": "sesame",
                    "infrastructure": {"parametersRef": {
                        "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "logs",
                    }},
                    "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
                },
            }),
        ],
    )?;
    for route in 0..routes {
        write_app(dir, route, port, "first")?;
    }
    Ok(())
}

/// Sets the access log of the Gateway, and the Service `collector` at this address.
pub(crate) fn write_access_log(
    dir: &Path,
    access_log: &Value,
    collector: SocketAddr,
) -> anyhow::Result<()> {
    let documents = [
        json!({
            "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
            "metadata": {"name": "logs", "namespace": "bench"},
            "spec": {"accessLog": access_log},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "collector", "namespace": "bench"},
            "spec": {"ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "collector-1", "namespace": "bench",
                "labels": {"kubernetes.io/service-name": "collector"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [collector.ip().to_string()]}],
            "ports": [{"port": collector.port()}],
        }),
    ];
    write(dir, "logs.yaml", &documents)
}

/// One file for each application: its Service, its endpoints and its route.
pub(crate) fn write_app(dir: &Path, route: usize, port: u16, revision: &str) -> anyhow::Result<()> {
    let service = format!("s{route}");
    let documents = [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "namespace": "bench"},
            "spec": {"ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("s{route}-1"), "namespace": "bench",
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"port": port}],
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": format!("r{route}"), "namespace": "bench"},
            "spec": {
                "parentRefs": [{"name": "bench"}],
                "hostnames": [hostname(route)],
                "rules": [{
                    "filters": [{
                        "type": "ResponseHeaderModifier",
                        "responseHeaderModifier": {"set": [{"name": "x-revision", "value": revision}]},
                    }],
                    "backendRefs": [{"name": service, "port": 80}],
                }],
            },
        }),
    ];
    write(dir, &format!("app{route}.yaml"), &documents)
}

/// Writes beside and renames, as careful tools do.
fn write(dir: &Path, name: &str, documents: &[Value]) -> anyhow::Result<()> {
    let mut text = String::new();
    for document in documents {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(document)?);
    }
    let staged = dir.join(format!(".{name}.new"));
    std::fs::write(&staged, text)?;
    std::fs::rename(staged, dir.join(name))?;
    Ok(())
}
