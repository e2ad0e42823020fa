//! Objects for the cluster to serve, and requests to its nodes.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::client::Request;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to};

use crate::images::ECHO;

pub(crate) const HOST: &str = "nodes.test";
pub(crate) const APP: &str = "app";

/// A backend Pod runs on each node.
pub(crate) fn version(number: u32) -> Vec<Value> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(backend());
    objects.push(route(APP, number));
    objects
}

/// The route's path contains the number.
pub(crate) fn route(name: &str, number: u32) -> Value {
    let matches = [
        path("PathPrefix", "/always"),
        path("Exact", &format!("/{number}")),
    ];
    http_route(name, &[HOST], &[rule_to(APP, &matches)])
}

pub(crate) fn get(node: SocketAddr, path: &str) -> Request {
    Request::get(node, HOST, path)
}

/// A terminating Pod keeps responding until every Envoy has removed its endpoint.
pub(crate) fn pods(namespace: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 30,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": labels},
                    }],
                    "containers": [{
                        "name": "echo",
                        "image": ECHO,
                        "ports": [{"containerPort": 3000}],
                        "readinessProbe": {"tcpSocket": {"port": 3000}, "periodSeconds": 1},
                        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                    }],
                },
            },
        },
    })
}

fn backend() -> [Value; 3] {
    let labels = json!({"app": APP});
    let deployment = pods("default", APP);
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": APP, "namespace": "default"},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 3000}]},
    });
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": APP, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    });
    [deployment, service, budget]
}
