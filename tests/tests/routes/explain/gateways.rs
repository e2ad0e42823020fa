//! Gateways in generated worlds, separate or merged, with random settings.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::manifests::{
    GATEWAY, edge, edge_with_parameters, gateway, http_listener, https_listener,
};
use sesame_tests::seeded::Moments;

use super::world::{one, rarely};

/// Name of the second Gateway, if a world has one.
pub(crate) const SECOND: &str = "second";
/// Listener names, with a flag that is true for those on the second Gateway in a merged world.
pub(crate) const LISTENERS: [(&str, bool); 5] = [
    ("http", false),
    ("wide", false),
    ("narrow", true),
    ("tls", false),
    ("tls-narrow", true),
];

/// A setting that applies to all Gateways of a world.
pub(crate) struct Setting {
    /// Field in `spec.edge` of a configuration.
    field: &'static str,
    /// Equivalent annotation on a Gateway.
    annotation: &'static str,
    /// Value in the configuration. The annotation has it in lower case.
    value: &'static str,
}

/// Number of Gateways in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayCount {
    One,
    /// Two Gateways, merged by their class. The second Gateway has the listeners for individual
    /// hostnames.
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

/// Returns an XBackend and the Pod that it selects, at the backend's address.
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

/// Returns random settings for paths and headers, mostly the defaults.
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
