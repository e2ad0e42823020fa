//! The objects of the run: those that load is sent to, those that come and go, and invalid ones.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{
    access_policy, backend_policy, backend_ref, class_with_parameters, edge, endpoint_slices,
    gateway, http_listener, http_route, https_listener, l4_listener, on_listener, path,
    plain_route, route, rule_to, service, traffic_policy,
};

use super::schedule::{BAD_OBJECTS, Defect};

pub(crate) const HTTP: u16 = 80;
pub(crate) const HTTPS: u16 = 443;
pub(crate) const TCP: u16 = 5000;
/// Port of [`SECOND`].
pub(crate) const HTTP3: u16 = 8443;
/// A listener on this port comes and goes.
const EXTRA: u16 = 81;
/// All Gateway ports.
pub(crate) const PORTS: [u16; 5] = [HTTP, HTTPS, TCP, HTTP3, EXTRA];
/// A Gateway with staged rollouts, and with HTTP/3. Its Envoys are therefore never restarted hot.
pub(crate) const SECOND: &str = "second";
/// Its route never changes.
pub(crate) const STEADY: &str = "steady.test";
/// Its route changes its Service and its policies.
pub(crate) const MOVING: &str = "moving.test";
/// Its certificate changes.
pub(crate) const SECURE: &str = "secure.test";
/// An `AccessPolicy` denies all requests.
pub(crate) const GUARDED: &str = "guarded.test";
/// Its routes have the number of the round.
pub(crate) const MARKER: &str = "marker.test";
/// The certificate's Secret.
pub(crate) const PAIR: &str = "pair";
/// The two Services for HTTP.
pub(crate) const SERVICES: [&str; 2] = ["a", "b"];
/// The Service for TCP.
pub(crate) const ECHO: &str = "echo";

/// A path expression that Sesame and Rust accept, but not Envoy's RE2.
const REJECTED_BY_ENVOY: &str = "(?x)a";

/// The servers behind the Services.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) tcp: Vec<SocketAddr>,
}

impl Backends {
    /// Returns the servers of a Service.
    fn of(&self, service: &str) -> &[SocketAddr] {
        if service == ECHO {
            &self.tcp
        } else {
            &self.http
        }
    }

    /// Returns a Service's slice for one server, which is empty if `used` is false.
    pub(crate) fn slice(&self, service: &str, index: usize, used: bool) -> Value {
        let endpoint = &self.of(service)[index..=index];
        let mut slice = endpoint_slices(service, endpoint).remove(0);
        if !used {
            slice["endpoints"] = json!([]);
        }
        slice
    }

    /// Returns a Service with its slices.
    fn served(&self, name: &str) -> Vec<Value> {
        let mut objects = vec![service(name, "")];
        let indexes = 0..self.of(name).len();
        objects.extend(indexes.map(|index| self.slice(name, index, true)));
        objects
    }
}

/// Returns the objects that exist during the whole run.
/// Also returns the certificate's Secret.
pub(crate) fn first(authority: &Authority, backends: &Backends) -> (Vec<Value>, Value) {
    let secret = authority.issue(&[SECURE]).secret(PAIR);
    let mut objects = edge(&listeners(false));
    objects.push(secret.clone());
    objects.extend(second());
    for name in [SERVICES[0], SERVICES[1], ECHO] {
        objects.extend(backends.served(name));
    }
    // The policy must exist before the route that it guards.
    objects.push(guard(0));
    objects.push(plain_route("guarded", GUARDED, "a"));
    objects.push(plain_route("steady", STEADY, "a"));
    objects.push(plain_route("victim", "victim.test", "a"));
    objects.push(moving(0));
    objects.push(on_listener(plain_route("secure", SECURE, "a"), "https"));
    objects.push(over_http3(0));
    objects.push(over_tcp());
    objects.extend(markers("start"));
    (objects, secret)
}

fn listeners(extra: bool) -> Vec<Value> {
    let mut listeners = vec![
        http_listener("http", HTTP, ""),
        https_listener("https", HTTPS, "", PAIR),
        l4_listener("tcp", TCP, "TCP"),
    ];
    if extra {
        listeners.push(http_listener("extra", EXTRA, ""));
    }
    listeners
}

/// Returns the Gateway, with or without the extra listener.
pub(crate) fn edge_gateway(extra: bool) -> Value {
    gateway("edge", &listeners(extra))
}

/// Returns [`SECOND`] with its class and configuration.
fn second() -> Vec<Value> {
    let stages = json!([{"hosts": 1, "bake": "1s"}, {"percent": 60, "bake": "1s"}]);
    let spec = json!({"edge": {"http3": {"mode": "Enabled"}}, "rollout": {"stages": stages}});
    let [parameters, class] = class_with_parameters(SECOND, SECOND, &spec);
    let listeners = [https_listener("https", HTTP3, "", PAIR)];
    vec![parameters, class, gateway(SECOND, &listeners)]
}

fn on_second(mut route: Value) -> Value {
    route["spec"]["parentRefs"][0]["name"] = json!(SECOND);
    route
}

/// Returns the route of [`SECURE`] on [`SECOND`].
pub(crate) fn over_http3(service: usize) -> Value {
    on_second(plain_route("over-http3", SECURE, SERVICES[service]))
}

fn over_tcp() -> Value {
    let rule = json!({"backendRefs": [backend_ref(ECHO)]});
    on_listener(route("TCPRoute", "over-tcp", &[], &[rule]), "tcp")
}

/// Returns the route of [`MOVING`].
pub(crate) fn moving(service: usize) -> Value {
    plain_route("moving", MOVING, SERVICES[service])
}

/// Returns the policy that denies all requests to [`GUARDED`].
pub(crate) fn guard(network: usize) -> Value {
    let networks = ["203.0.113.0/24", "198.51.100.0/24"];
    let target = json!({"kind": "HTTPRoute", "name": "guarded"});
    let spec = json!({"ipFilter": {"allow": [networks[network]], "source": "Peer"}});
    access_policy("guard", target, &spec)
}

/// Returns a policy for the route of [`MOVING`].
pub(crate) fn timeouts(seconds: u64) -> Value {
    let target = json!({"kind": "HTTPRoute", "name": "moving"});
    let request = format!("{}s", 30 + seconds);
    traffic_policy(
        "timeouts",
        target,
        &json!({"timeouts": {"request": request}}),
    )
}

/// Returns a policy for the Service `b`.
pub(crate) fn connections(seconds: u64) -> Value {
    let timeout = format!("{}s", 10 + seconds);
    backend_policy(SERVICES[1], &json!({"connection": {"timeout": timeout}}))
}

/// Returns a route that gets no load.
pub(crate) fn extra(index: u64, service: usize) -> Value {
    let name = format!("extra-{index}");
    plain_route(&name, &format!("{name}.test"), SERVICES[service])
}

/// Returns a route of each Gateway with a path that only this version has.
pub(crate) fn markers(version: &str) -> [Value; 2] {
    let marker = |name: &str| {
        let matches = [path("Exact", &format!("/{version}"))];
        http_route(name, &[MARKER], &[rule_to("a", &matches)])
    };
    [marker("marker"), on_second(marker("second-marker"))]
}

/// Returns an invalid object.
pub(crate) fn bad(kind: usize) -> Value {
    let name = format!("bad-{kind}");
    let host = format!("{name}.test");
    let bad = |rules: &[Value]| http_route(&name, &[&host], rules);
    match kind {
        0 => bad(&[rule_to(
            "a",
            &[path("RegularExpression", REJECTED_BY_ENVOY)],
        )]),
        1 => bad(&[rule_to("missing", &[])]),
        2 => {
            let reference =
                json!({"group": "projectsesame.io", "kind": "RouteFilter", "name": "missing"});
            let mut rule = rule_to("a", &[]);
            rule["filters"] = json!([{"type": "ExtensionRef", "extensionRef": reference}]);
            bad(&[rule])
        }
        3 => {
            let target = json!({"kind": "HTTPRoute", "name": "victim"});
            access_policy(&name, target, &json!({"ipFilter": {"allow": ["10.0.0.1"]}}))
        }
        // A later route with the same match must not bypass the policy.
        4 => plain_route(&name, GUARDED, "b"),
        _ => {
            let query =
                json!([{"type": "RegularExpression", "name": "q", "value": REJECTED_BY_ENVOY}]);
            let wrong = rule_to("a", &[json!({"queryParams": query})]);
            bad(&[wrong, rule_to("b", &[path("Exact", "/good")])])
        }
    }
}

/// Returns one of each kind of object that is applied later.
pub(crate) fn later() -> Vec<Value> {
    let mut objects: Vec<Value> = (0..BAD_OBJECTS).map(bad).collect();
    objects.extend([edge_gateway(true), moving(1), extra(0, 0), guard(1)]);
    objects.extend([over_http3(1), timeouts(0), connections(0)]);
    objects
}

/// Returns the certificate's Secret with a defect.
pub(crate) fn broken(authority: &Authority, defect: Defect) -> Value {
    let leaf = authority.issue(&[SECURE]);
    let mut secret = leaf.secret(PAIR);
    let encode = |text: &str| json!(STANDARD.encode(text));
    match defect {
        Defect::OtherKey => {
            secret["data"]["tls.key"] = encode(&authority.issue(&[SECURE]).key_pem);
        }
        Defect::Truncated => {
            let pem = &leaf.certificate_pem;
            secret["data"]["tls.crt"] = encode(&pem[..pem.len() / 2]);
        }
        // The API server requires both entries.
        Defect::WithoutKey => secret["data"]["tls.key"] = json!(""),
    }
    secret
}
