//! Builds Gateway API objects as JSON values, and writes them as YAML.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;

/// Default namespace of test objects.
pub const NAMESPACE: &str = "default";

/// The controller name in test classes.
pub const CONTROLLER: &str = "projectsesame.io/gateway-controller";

/// Name of the class and the Gateway in tests that need only one of each.
pub const GATEWAY: &str = "edge";

/// Returns the objects as one YAML stream.
pub fn yaml(objects: &[Value]) -> String {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).expect("values are YAML"));
        text.push('\n');
    }
    text
}

/// Returns a `GatewayClass` for Sesame's controller.
pub fn gateway_class(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER},
    })
}

/// Returns a Gateway whose class has the same name.
pub fn gateway(name: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gatewayClassName": name, "listeners": listeners},
    })
}

/// Returns the namespaced name of [`GATEWAY`].
pub fn edge_name() -> NamespacedName {
    NamespacedName::new(NAMESPACE, GATEWAY)
}

/// Returns [`GATEWAY`] with port 80 and a route for `/always` and `/{number}`.
pub fn numbered(host: &str, number: usize, backend: SocketAddr) -> String {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend]));
    let paths = ["/always", &format!("/{number}")].map(|at| path("Exact", at));
    objects.push(http_route("app", &[host], &[rule_to("app", &paths)]));
    yaml(&objects)
}

/// Returns [`GATEWAY`] with its class.
pub fn edge(listeners: &[Value]) -> Vec<Value> {
    vec![gateway_class(GATEWAY), gateway(GATEWAY, listeners)]
}

/// Returns [`GATEWAY`] with an HTTP listener, its class, and a SesameConfiguration.
pub fn edge_with_parameters(spec: &Value) -> Vec<Value> {
    edge_with(spec, &[http_listener("http", 80, "")])
}

/// Returns [`GATEWAY`] with its class and a SesameConfiguration. The Gateway is the last object.
pub fn edge_with(spec: &Value, listeners: &[Value]) -> Vec<Value> {
    let [parameters, class] = class_with_parameters(GATEWAY, "template", spec);
    vec![parameters, class, gateway(GATEWAY, listeners)]
}

/// Returns a SesameConfiguration, and a class that refers to it.
pub fn class_with_parameters(name: &str, parameters: &str, spec: &Value) -> [Value; 2] {
    let mut class = gateway_class(name);
    class["spec"]["parametersRef"] = json!({"group": "projectsesame.io",
        "kind": "SesameConfiguration", "name": parameters, "namespace": "default"});
    let parameters = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": parameters, "namespace": "default"}, "spec": spec});
    [parameters, class]
}

/// Returns an HTTP listener; `hostname` may be empty.
pub fn http_listener(name: &str, port: u16, hostname: &str) -> Value {
    let mut listener = json!({"name": name, "port": port, "protocol": "HTTP"});
    set_unless_empty(&mut listener, "hostname", hostname);
    listener
}

/// Returns an HTTPS listener with the certificate from a Secret.
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

/// Returns a `TCP` or `UDP` listener.
pub fn l4_listener(name: &str, port: u16, protocol: &str) -> Value {
    json!({"name": name, "port": port, "protocol": protocol})
}

/// Returns a TLS listener, which passes TLS through if `secret` is `None`.
pub fn tls_listener(name: &str, port: u16, hostname: &str, secret: Option<&str>) -> Value {
    let tls = match secret {
        Some(secret) => json!({"mode": "Terminate", "certificateRefs": [{"name": secret}]}),
        None => json!({"mode": "Passthrough"}),
    };
    let mut listener = json!({"name": name, "port": port, "protocol": "TLS", "tls": tls});
    set_unless_empty(&mut listener, "hostname", hostname);
    listener
}

/// Changes the ports of Services and EndpointSlices to UDP.
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

/// Returns a Service with port 80; `app_protocol` may be empty.
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

/// Returns a Service's `EndpointSlices`: one per port number, or an empty one.
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

/// Returns a Service with its endpoints.
pub fn served(name: &str, endpoints: &[SocketAddr]) -> Vec<Value> {
    let mut objects = vec![service(name, "")];
    objects.extend(endpoint_slices(name, endpoints));
    objects
}

/// Returns a Service with one endpoint, `address:port`.
pub fn served_at(name: &str, endpoint: &str) -> Vec<Value> {
    served(name, &[endpoint.parse().expect("an address")])
}

/// Returns an `HTTPRoute` of [`GATEWAY`] that sends every path to one Service.
pub fn plain_route(name: &str, hostname: &str, service: &str) -> Value {
    let rule = rule_to(service, &[path("PathPrefix", "/")]);
    http_route(name, &[hostname], &[rule])
}

/// Returns an `HTTPRoute` that attaches to [`GATEWAY`].
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

/// Returns a route of [`GATEWAY`]. `hostnames` must be empty for kinds without hostnames.
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

/// Restricts a route to one listener of its Gateway.
pub fn on_listener(mut route: Value, listener: &str) -> Value {
    route["spec"]["parentRefs"][0]["sectionName"] = json!(listener);
    route
}

/// Returns a `ListenerSet` for [`GATEWAY`].
pub fn listener_set(name: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"parentRef": {"name": GATEWAY}, "listeners": listeners},
    })
}

/// Attaches a route to a `ListenerSet` instead of its Gateway.
pub fn on_listener_set(mut route: Value, set: &str) -> Value {
    route["spec"]["parentRefs"] = json!([{"kind": "ListenerSet", "name": set}]);
    route
}

/// Returns a `TrafficPolicy` with this target.
pub fn traffic_policy(name: &str, target: Value, spec: &Value) -> Value {
    request_policy("TrafficPolicy", name, target, spec)
}

/// Returns an `AccessPolicy` with this target.
pub fn access_policy(name: &str, target: Value, spec: &Value) -> Value {
    request_policy("AccessPolicy", name, target, spec)
}

fn request_policy(kind: &str, name: &str, mut target: Value, spec: &Value) -> Value {
    target["group"] = json!("gateway.networking.k8s.io");
    policy(kind, name, &target, spec)
}

/// Returns a `BackendPolicy` for the Service of the same name.
pub fn backend_policy(service: &str, spec: &Value) -> Value {
    let target = json!({"group": "", "kind": "Service", "name": service});
    policy("BackendPolicy", service, &target, spec)
}

fn policy(kind: &str, name: &str, target: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["targetRefs"] = json!([target]);
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}

/// Returns a `BackendTLSPolicy` for the Service of the same name.
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

/// Returns a `validation` field that refers to CA certificates and has a hostname.
pub fn verified_by(config_map: &str, hostname: &str) -> Value {
    json!({
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": config_map}],
        "hostname": hostname,
    })
}

/// Returns a rule that routes any of `matches` to one Service.
pub fn rule_to(service: &str, matches: &[Value]) -> Value {
    json!({"matches": matches, "backendRefs": [backend_ref(service)]})
}

/// Returns a reference to port 80 of a Service.
pub fn backend_ref(service: &str) -> Value {
    json!({"name": service, "port": 80})
}

/// Returns a weighted reference to port 80 of a Service.
pub fn weighted_ref(service: &str, weight: u32) -> Value {
    json!({"name": service, "port": 80, "weight": weight})
}

/// Returns a path match; `kind` is `Exact`, `PathPrefix` or `RegularExpression`.
pub fn path(kind: &str, value: &str) -> Value {
    json!({"path": {"type": kind, "value": value}})
}

fn set_unless_empty(object: &mut Value, field: &str, value: &str) {
    if !value.is_empty() {
        object[field] = json!(value);
    }
}

/// Returns the IngressClass `edge` for the Gateway `edge`.
pub fn ingress_class() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "edge"},
    "spec": {
        "controller": "projectsesame.io/ingress-controller",
        "parameters": {"apiGroup": "gateway.networking.k8s.io", "kind": "Gateway",
            "scope": "Namespace", "namespace": "default", "name": "edge"},
    }})
}

/// Returns an Ingress of the class `edge`.
pub fn ingress(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations}, "spec": spec});
    ingress["spec"]["ingressClassName"] = json!("edge");
    ingress
}

/// Returns an HTTPProxy of the class `edge`.
pub fn http_proxy(name: &str, spec: &Value) -> Value {
    let mut proxy = json!({"apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    proxy["spec"]["ingressClassName"] = json!("edge");
    proxy
}

/// Returns an IngressClass `edge`, an HTTPProxy for `proxy.test` and an Ingress for `ingress.test`.
pub fn layered(name: &str, service: &str) -> [Value; 3] {
    let routes = json!([{"services": [{"name": service, "port": 80}]}]);
    let proxy = json!({"virtualhost": {"fqdn": "proxy.test"}, "routes": routes});
    let rules = json!({"rules": [ingress_rule("ingress.test", &[("/", "Prefix", service)])]});
    [
        ingress_class(),
        http_proxy(name, &proxy),
        ingress(name, &json!({}), &rules),
    ]
}

/// Returns an Ingress backend: port 80 of a Service.
pub fn ingress_backend(service: &str) -> Value {
    json!({"service": {"name": service, "port": {"number": 80}}})
}

/// Returns an Ingress rule. Each tuple contains a path, its type and a Service.
pub fn ingress_rule(host: &str, paths: &[(&str, &str, &str)]) -> Value {
    let paths = paths.iter().map(|(path, kind, service)| {
        json!({"path": path, "pathType": kind, "backend": ingress_backend(service)})
    });
    json!({"host": host, "http": {"paths": paths.collect::<Vec<_>>()}})
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
