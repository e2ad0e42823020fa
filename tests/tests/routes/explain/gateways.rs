//! Gateways in generated worlds, separate or merged, with random settings.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::manifests::{
    GATEWAY, edge, edge_with_parameters, gateway, http_listener, https_listener,
};
use sesame_tests::seeded::Moments;

use super::world::{one, rarely};

pub(crate) const SECOND: &str = "second";
/// Listener names, with `true` for the second Gateway in a merged world.
pub(crate) const LISTENERS: [(&str, bool); 5] = [
    ("http", false),
    ("wide", false),
    ("narrow", true),
    ("tls", false),
    ("tls-narrow", true),
];

pub(crate) struct Setting {
    /// In `spec.edge` of a SesameConfiguration.
    field: &'static str,
    annotation: &'static str,
    /// The annotation has this value in lower case.
    value: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayCount {
    One,
    /// Listeners for individual hostnames are on the second Gateway.
    Merged,
}

pub(crate) fn gateways(count: GatewayCount, settings: &[Setting]) -> Vec<Value> {
    let wide = [
        http_listener("http", 80, ""),
        http_listener("wide", 8080, "*.w.test"),
        https_listener("tls", 443, "*.w.test", "certificate"),
    ];
    let narrow = [
        http_listener("narrow", 8080, "a.w.test"),
        https_listener("tls-narrow", 443, "s.w.test", "certificate"),
    ];
    match count {
        GatewayCount::One => {
            let mut objects = edge(&[&wide[..], &narrow].concat());
            let all = settings.iter();
            let all = all.map(|it| (it.annotation, it.value.to_ascii_lowercase()));
            objects[1]["metadata"]["annotations"] = all.collect();
            objects
        }
        GatewayCount::Merged => {
            let fields: Value = settings.iter().map(|it| (it.field, it.value)).collect();
            let spec = json!({"fleet": {"gateways": "Merged"}, "publishing": {"type": "None"}, "edge": fields});
            let mut objects = edge_with_parameters(&spec);
            objects.truncate(2);
            for (name, listeners) in [(GATEWAY, &wide[..]), (SECOND, &narrow)] {
                let mut member = gateway(name, listeners);
                member["spec"]["gatewayClassName"] = json!(GATEWAY);
                objects.push(member);
            }
            objects
        }
    }
}

pub(crate) fn pods(backend: SocketAddr) -> [Value; 2] {
    let (ip, port) = (backend.ip(), backend.port());
    [
        json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
            "metadata": {"name": "pods", "namespace": "default"},
            "spec": {"type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "shop"}},
                "port": {"number": port}, "protocol": "HTTP"}}),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "shop-1", "namespace": "default", "labels": {"app": "shop"}},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
    ]
}

/// Most settings keep their defaults.
pub(crate) fn any_settings(moments: &mut Moments) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (field, annotation, values) in [
        (
            "escapedSlashes",
            "projectsesame.io/escaped-slashes",
            &["Redirect", "Reject", "Unescape", "Keep"][..],
        ),
        (
            "repeatedSlashes",
            "projectsesame.io/repeated-slashes",
            &["Merge", "Keep"],
        ),
        (
            "headerUnderscores",
            "projectsesame.io/header-underscores",
            &["Reject", "Drop", "Allow"],
        ),
    ] {
        if rarely(moments, 2) {
            settings.push(Setting {
                field,
                annotation,
                value: one(moments, values),
            });
        }
    }
    settings
}
