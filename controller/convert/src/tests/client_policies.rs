//! ClientTrafficPolicies for listeners.

use serde_json::{Value, json};

use super::policies::{BASE, spec};
use super::{converted, parse};

fn client_policy(name: &str, section: Option<&str>, mut spec: Value) -> Value {
    let mut target = json!({
        "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge",
    });
    if let Some(section) = section {
        target["sectionName"] = json!(section);
    }
    spec["targetRefs"] = json!([target]);
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "ClientTrafficPolicy",
        "metadata": {"name": name},
        "spec": spec,
    })
}

#[test]
fn listener_tls_overrides_gateway_in_any_order() {
    for (gateway, listener) in [("a", "b"), ("b", "a")] {
        let mut objects = parse(BASE);
        let version = |version: &str| json!({"tls": {"minVersion": version}});
        objects.push(client_policy(gateway, None, version("1.2")));
        objects.push(client_policy(listener, Some("secure"), version("1.3")));
        let conversion = converted(&objects, &[]);
        let gateway = spec(&conversion, "Gateway", "edge");
        let options = &gateway["listeners"][1]["tls"]["options"];
        assert_eq!(options["projectsesame.io/min-version"], "1.3", "{listener}");
    }
}

#[test]
fn trusted_networks_apply_to_one_listener() {
    let networks =
        json!({"clientIPDetection": {"xForwardedFor": {"trustedCIDRs": ["192.0.2.0/24"]}}});
    let mut objects = parse(BASE);
    objects.push(client_policy("it", Some("web"), networks));
    let conversion = converted(&objects, &[]);
    let ports = &spec(&conversion, "SesameConfiguration", "edge")["edgePorts"];
    let edge = json!({"clientAddress": {"networks": ["192.0.2.0/24"]}});
    assert_eq!(*ports, json!([{"port": 80, "edge": edge}]));
}

#[test]
fn listener_policies_become_settings_of_ports() {
    let mut objects = parse(BASE);
    let path = json!({"path": {"escapedSlashesAction": "KeepUnchanged"}});
    objects.push(client_policy("a", Some("web"), path));
    let slow = json!({"timeout": {"http": {"idleTimeout": "1h"}}});
    objects.push(client_policy("b", Some("secure"), slow));
    let conversion = converted(&objects, &[]);
    let ports = &spec(&conversion, "SesameConfiguration", "edge")["edgePorts"];
    let expected = json!([
        {"port": 80, "edge": {"escapedSlashes": "Keep"}},
        {"port": 443, "edge": {"connectionIdleTimeout": "1h"}},
    ]);
    assert_eq!(*ports, expected);
}
