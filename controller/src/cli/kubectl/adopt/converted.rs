//! Hosts of Envoy Gateway's routes, with the verdicts of a conversion.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;
use sesame_kinds::world::Kind;

use super::super::reading::ClusterReader;
use super::copies::{items, name_of, text};
use super::report::{ANY_HOST, HostReport};

const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const VERSION: &str = "gateway.envoyproxy.io/v1alpha1";
const KINDS: [&str; 8] = [
    "Backend",
    "BackendTrafficPolicy",
    "ClientTrafficPolicy",
    "EnvoyExtensionPolicy",
    "EnvoyPatchPolicy",
    "EnvoyProxy",
    "HTTPRouteFilter",
    "SecurityPolicy",
];

/// Returns nothing if no GatewayClass belongs to Envoy Gateway.
pub(super) async fn read(reader: &ClusterReader) -> Result<Vec<HostReport>> {
    let format = sesame_convert::FORMATS.iter();
    let format = format.clone().find(|it| it.name == "envoy-gateway");
    let classes = super::list(reader, Kind::GatewayClass).await?.into_iter();
    let classes: Vec<Value> = classes
        .filter(|it| text(it, "/spec/controllerName") == CONTROLLER)
        .collect();
    let (Some(format), false) = (format, classes.is_empty()) else {
        return Ok(Vec::new());
    };
    let names: BTreeSet<String> = classes
        .iter()
        .map(|it| text(it, "/metadata/name").to_owned())
        .collect();
    let mut gateways = super::list(reader, Kind::Gateway).await?;
    gateways.retain(|it| names.contains(text(it, "/spec/gatewayClassName")));
    let parents: BTreeSet<String> = gateways.iter().map(name_of).collect();
    let mut routes = Vec::new();
    for kind in [Kind::HttpRoute, Kind::GrpcRoute] {
        routes.extend(super::list(reader, kind).await?);
    }
    routes.retain(|route| {
        let mut references = items(route, "/spec/parentRefs").iter();
        references.any(|it| parents.contains(&parent(route, it)))
    });
    let mut objects: Vec<Value> = classes.into_iter().chain(gateways).collect();
    objects.extend(routes.iter().cloned());
    for kind in KINDS {
        objects.extend(reader.list_other(VERSION, kind).await?);
    }
    let conversion = sesame_convert::convert(format, &objects, &[]);
    Ok(by_host(
        &routes,
        &objects,
        &sesame_convert::as_json(&conversion),
    ))
}

fn parent(route: &Value, reference: &Value) -> String {
    let namespace = match text(reference, "/namespace") {
        "" => text(route, "/metadata/namespace"),
        namespace => namespace,
    };
    format!("Gateway/{namespace}/{}", text(reference, "/name"))
}

fn by_host(routes: &[Value], objects: &[Value], verdicts: &Value) -> Vec<HostReport> {
    let mut hosts: BTreeMap<String, HostReport> = BTreeMap::new();
    for route in routes {
        let names = items(route, "/spec/hostnames")
            .iter()
            .filter_map(Value::as_str);
        let mut names: Vec<&str> = names.collect();
        if names.is_empty() {
            names.push(ANY_HOST);
        }
        let involved = involved(route, objects);
        for host in names {
            let row = hosts.entry(host.to_owned()).or_insert_with(|| HostReport {
                host: host.to_owned(),
                objects: BTreeSet::new(),
                rules: 0,
                losses: BTreeSet::new(),
                notes: BTreeSet::new(),
            });
            row.objects.insert(name_of(route));
            row.rules += items(route, "/spec/rules").len();
            add_verdicts(row, &involved, verdicts);
        }
    }
    hosts.into_values().collect()
}

/// Returns the route, its Gateways, and the policies that target one of these.
fn involved(route: &Value, objects: &[Value]) -> BTreeSet<String> {
    let references = items(route, "/spec/parentRefs").iter();
    let mut targets: BTreeSet<String> = references.map(|it| parent(route, it)).collect();
    targets.insert(name_of(route));
    let is_target = |policy: &Value, reference: &Value| {
        let namespace = text(policy, "/metadata/namespace");
        let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
        targets.contains(&format!("{kind}/{namespace}/{name}"))
    };
    let policies = objects.iter().filter(|policy| {
        let one = policy.pointer("/spec/targetRef").into_iter();
        let mut references = items(policy, "/spec/targetRefs").iter().chain(one);
        references.any(|it| is_target(policy, it))
    });
    let policies: BTreeSet<String> = policies.map(name_of).collect();
    targets.into_iter().chain(policies).collect()
}

fn add_verdicts(row: &mut HostReport, involved: &BTreeSet<String>, verdicts: &Value) {
    for object in items(verdicts, "/objects") {
        let name = text(object, "/object");
        if !involved.contains(name) {
            continue;
        }
        for field in items(object, "/fields") {
            let path = text(field, "/field");
            match text(field, "/verdict") {
                "refused" => {
                    let rejected = field["protects"] == true;
                    let reason = text(field, "/reason");
                    row.add(rejected, name, &format!("{path}: {reason}"));
                }
                "differs" => {
                    let difference = text(field, "/difference");
                    row.add(false, name, &format!("{path}: {difference}"));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn host_has_losses_of_policies_that_target_it() {
        let object = |version: &str, kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": version, "kind": kind,
                   "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        };
        let api = "gateway.networking.k8s.io/v1";
        let class = object(
            api,
            "GatewayClass",
            "eg",
            json!({"controllerName": CONTROLLER}),
        );
        let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
        let gateway = json!({"gatewayClassName": "eg", "listeners": listeners});
        let route = |name: &str| {
            let spec = json!({"parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.test")],
                              "rules": [{"backendRefs": [{"name": "app", "port": 80}]}]});
            object(api, "HTTPRoute", name, spec)
        };
        let routes = [route("a"), route("b")];
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "a"});
        let policy = json!({"targetRefs": [target], "oidc": {"clientID": "x"}});
        let mut objects = vec![
            class,
            object(api, "Gateway", "edge", gateway),
            object(VERSION, "SecurityPolicy", "login", policy),
        ];
        objects.extend(routes.clone());
        let mut formats = sesame_convert::FORMATS.iter();
        let format = formats
            .find(|it| it.name == "envoy-gateway")
            .expect("a format");
        let conversion = sesame_convert::convert(format, &objects, &[]);
        let rows = by_host(&routes, &objects, &sesame_convert::as_json(&conversion));
        let hosts: Vec<(&str, bool)> = rows.iter().map(|it| (&*it.host, it.is_ready())).collect();
        assert_eq!(hosts, [("a.test", false), ("b.test", true)]);
        let loss = rows[0]
            .losses
            .iter()
            .find(|it| it.rejected)
            .expect("a loss");
        assert_eq!(loss.object, "SecurityPolicy/shop/login");
        assert!(loss.message.starts_with("spec.oidc: "), "{loss:?}");
    }
}
