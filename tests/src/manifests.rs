//! Gateway API objects, built as values and written as YAML.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_gateway_api::api::NamespacedName;

/// Namespace of every object of a test, unless it names another.
pub const NAMESPACE: &str = "default";

/// The controller that tests' classes name.
pub const CONTROLLER: &str = "projectsesame.io/gateway-controller";

/// The class and Gateway that tests use when one is enough.
pub const GATEWAY: &str = "edge";

/// Several objects as one YAML text.
pub fn yaml(objects: &[Value]) -> String {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).expect("values are YAML"));
        text.push('\n');
    }
    text
}

/// A `GatewayClass` of ours.
pub fn gateway_class(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER},
    })
}

/// A Gateway whose class has the same name.
pub fn gateway(name: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gatewayClassName": name, "listeners": listeners},
    })
}

/// Returns the name of [`GATEWAY`].
pub fn edge_name() -> NamespacedName {
    NamespacedName::new(NAMESPACE, GATEWAY)
}

/// Returns [`GATEWAY`] on port 80 with one route, whose paths are `/always` and the number of this version.
pub fn numbered(host: &str, number: usize, backend: SocketAddr) -> String {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend]));
    let paths = ["/always", &format!("/{number}")].map(|at| path("Exact", at));
    objects.push(http_route("app", &[host], &[rule_to("app", &paths)]));
    yaml(&objects)
}

/// [`GATEWAY`] with its class.
pub fn edge(listeners: &[Value]) -> Vec<Value> {
    vec![gateway_class(GATEWAY), gateway(GATEWAY, listeners)]
}

/// The same with one HTTP listener, and a SesameConfiguration of this `spec` as parameters of the class, which comes first.
pub fn edge_with_parameters(spec: &Value) -> Vec<Value> {
    let [parameters, class] = class_with_parameters(GATEWAY, "template", spec);
    let gateway = gateway(GATEWAY, &[http_listener("http", 80, "")]);
    vec![parameters, class, gateway]
}

/// A SesameConfiguration of this name and `spec`, and a class that has it as parameters.
pub fn class_with_parameters(name: &str, parameters: &str, spec: &Value) -> [Value; 2] {
    let mut class = gateway_class(name);
    class["spec"]["parametersRef"] = json!({"group": "projectsesame.io",
        "kind": "SesameConfiguration", "name": parameters, "namespace": "default"});
    let parameters = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": parameters, "namespace": "default"}, "spec": spec});
    [parameters, class]
}

/// An HTTP listener; an empty hostname is none.
pub fn http_listener(name: &str, port: u16, hostname: &str) -> Value {
    let mut listener = json!({"name": name, "port": port, "protocol": "HTTP"});
    set_unless_empty(&mut listener, "hostname", hostname);
    listener
}

/// An HTTPS listener that shows one Secret's certificate.
pub fn https_listener(name: &str, port: u16, hostname: &str, secret: &str) -> Value {
    let mut listener = json!({
        "name": name,
        "port": port,
        "protocol": "HTTPS",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": secret}]},
    });
    set_unless_empty(&mut listener, "hostname", hostname);
    listener
}

/// A listener that routes connections or datagrams by port alone: `TCP` or `UDP`.
pub fn l4_listener(name: &str, port: u16, protocol: &str) -> Value {
    json!({"name": name, "port": port, "protocol": protocol})
}

/// A TLS listener that terminates with one Secret's certificate, or passes through where there is none.
pub fn tls_listener(name: &str, port: u16, hostname: &str, secret: Option<&str>) -> Value {
    let tls = match secret {
        Some(secret) => json!({"mode": "Terminate", "certificateRefs": [{"name": secret}]}),
        None => json!({"mode": "Passthrough"}),
    };
    let mut listener = json!({"name": name, "port": port, "protocol": "TLS", "tls": tls});
    set_unless_empty(&mut listener, "hostname", hostname);
    listener
}

/// Services and slices with UDP in place of TCP.
pub fn over_udp(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        for at in ["/spec/ports/0/protocol", "/ports/0/protocol"] {
            if let Some(protocol) = object.pointer_mut(at) {
                *protocol = json!("UDP");
            }
        }
    }
    objects
}

/// A Service with port 80; an empty protocol is none.
pub fn service(name: &str, app_protocol: &str) -> Value {
    let mut port = json!({"name": "http", "port": 80, "protocol": "TCP"});
    set_unless_empty(&mut port, "appProtocol", app_protocol);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"ports": [port]},
    })
}

/// The `EndpointSlices` of a Service: one for each port, because a slice has its ports once for all addresses.
/// Without endpoints: one empty slice.
pub fn endpoint_slices(service: &str, endpoints: &[SocketAddr]) -> Vec<Value> {
    let mut by_port: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
    for endpoint in endpoints {
        by_port.entry(endpoint.port()).or_default().push(json!({
            "addresses": [endpoint.ip().to_string()],
            "conditions": {"ready": true},
        }));
    }
    if by_port.is_empty() {
        by_port.insert(80, Vec::new());
    }
    by_port
        .into_iter()
        .map(|(port, endpoints)| {
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("{service}-{port}"),
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            })
        })
        .collect()
}

/// A Service together with its endpoints.
pub fn served(name: &str, endpoints: &[SocketAddr]) -> Vec<Value> {
    let mut objects = vec![service(name, "")];
    objects.extend(endpoint_slices(name, endpoints));
    objects
}

/// A Service together with one endpoint, given as `address:port`.
pub fn served_at(name: &str, endpoint: &str) -> Vec<Value> {
    served(name, &[endpoint.parse().expect("an address")])
}

/// An `HTTPRoute` on [`GATEWAY`] that sends whatever is below `/` to one Service.
pub fn plain_route(name: &str, hostname: &str, service: &str) -> Value {
    let rule = rule_to(service, &[path("PathPrefix", "/")]);
    http_route(name, &[hostname], &[rule])
}

/// An `HTTPRoute` on [`GATEWAY`].
pub fn http_route(name: &str, hostnames: &[&str], rules: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": hostnames,
            "rules": rules,
        },
    })
}

/// A route of another kind on [`GATEWAY`]; without hostnames where the kind has none.
pub fn route(kind: &str, name: &str, hostnames: &[&str], rules: &[Value]) -> Value {
    let mut route = http_route(name, hostnames, rules);
    route["kind"] = json!(kind);
    if hostnames.is_empty()
        && let Some(spec) = route["spec"].as_object_mut()
    {
        spec.remove("hostnames");
    }
    route
}

/// Attaches a route to one listener only.
pub fn on_listener(mut route: Value, listener: &str) -> Value {
    route["spec"]["parentRefs"][0]["sectionName"] = json!(listener);
    route
}

/// A `ListenerSet` of [`GATEWAY`].
pub fn listener_set(name: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"parentRef": {"name": GATEWAY}, "listeners": listeners},
    })
}

/// Attaches a route to a `ListenerSet` in place of its Gateway.
pub fn on_listener_set(mut route: Value, set: &str) -> Value {
    route["spec"]["parentRefs"] = json!([{"kind": "ListenerSet", "name": set}]);
    route
}

/// A `BackendTLSPolicy` for a Service of the same name.
pub fn backend_tls_policy(service: &str, validation: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"name": service, "namespace": NAMESPACE},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": service}],
            "validation": validation,
        },
    })
}

/// `caCertificateRefs` with one `ConfigMap`, and a hostname.
pub fn verified_by(config_map: &str, hostname: &str) -> Value {
    json!({
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": config_map}],
        "hostname": hostname,
    })
}

/// A rule that sends what one of `matches` matches to one Service.
pub fn rule_to(service: &str, matches: &[Value]) -> Value {
    json!({"matches": matches, "backendRefs": [backend_ref(service)]})
}

/// Port 80 of a Service.
pub fn backend_ref(service: &str) -> Value {
    json!({"name": service, "port": 80})
}

/// Port 80 of a Service with a weight.
pub fn weighted_ref(service: &str, weight: u32) -> Value {
    json!({"name": service, "port": 80, "weight": weight})
}

/// A match by path; `kind` is `Exact`, `PathPrefix` or `RegularExpression`.
pub fn path(kind: &str, value: &str) -> Value {
    json!({"path": {"type": kind, "value": value}})
}

fn set_unless_empty(object: &mut Value, field: &str, value: &str) {
    if !value.is_empty() {
        object[field] = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_reads_back_as_the_same_values() {
        let addresses = ["127.0.0.1:9001", "127.0.0.2:9001", "127.0.0.1:9002"]
            .map(|address| address.parse().expect("an address"));
        let mut objects = edge(&[http_listener("http", 80, "*.example.com")]);
        objects.extend(served("yes", &addresses));
        objects.push(http_route(
            "on",
            &["a.example.com"],
            &[rule_to("yes", &[path("Exact", "/é: #")])],
        ));
        let text = yaml(&objects);
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        assert_eq!(read, objects, "{text}");
    }
}
