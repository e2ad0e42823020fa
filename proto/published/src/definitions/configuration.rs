//! Generates the `SesameConfiguration` CRD from its Rust types. Express as many checks as possible
//! in the schema, so that the API server rejects most mistakes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sesame_kinds::api::{SESAME_GROUP, SesameConfigurationSpec};

use super::schema;

const RULES: &[(&str, &[(&str, &str)])] = &[
    (
        "publishing",
        &[
            (
                "!has(self.loadBalancerClass) || !has(self.type) || self.type == 'LoadBalancer'",
                "loadBalancerClass: allowed only with type LoadBalancer",
            ),
            (
                "!has(self.loadBalancerSourceRanges) || !has(self.type) || self.type == 'LoadBalancer'",
                "loadBalancerSourceRanges: allowed only with type LoadBalancer",
            ),
            (
                "!has(self.loadBalancerSourceRanges) || self.loadBalancerSourceRanges.all(n, isCIDR(n))",
                "loadBalancerSourceRanges: expected networks such as 192.0.2.0/24",
            ),
            (
                "!has(self.allocateLoadBalancerNodePorts) || !has(self.type) || self.type == 'LoadBalancer'",
                "allocateLoadBalancerNodePorts: allowed only with type LoadBalancer",
            ),
            (
                "!has(self.externalTrafficPolicy) || !has(self.type) || self.type in ['NodePort', 'LoadBalancer']",
                "externalTrafficPolicy: allowed only with type NodePort or LoadBalancer",
            ),
            (
                "!has(self.nodePorts) || !has(self.type) || self.type in ['NodePort', 'LoadBalancer']",
                "nodePorts: allowed only with type NodePort or LoadBalancer",
            ),
            (
                "!has(self.nodePorts) || self.nodePorts.all(m, self.nodePorts.exists_one(n, n.port == m.port))",
                "nodePorts: a port is listed twice",
            ),
            (
                "!has(self.nodePorts) || self.nodePorts.all(m, self.nodePorts.exists_one(n, n.nodePort == m.nodePort))",
                "nodePorts: a node port is listed twice",
            ),
            (
                "!has(self.internalTrafficPolicy) || !has(self.type) || !(self.type in ['Headless', 'None'])",
                "internalTrafficPolicy: allowed only with type ClusterIP, NodePort or LoadBalancer",
            ),
            (
                "!has(self.sessionAffinity) || !has(self.type) || !(self.type in ['Headless', 'None'])",
                "sessionAffinity: allowed only with type ClusterIP, NodePort or LoadBalancer",
            ),
        ],
    ),
    (
        "ingress",
        &[
            (
                "!has(self.tls) || !has(self.tls.minVersion) || !has(self.tls.maxVersion) || self.tls.minVersion <= self.tls.maxVersion",
                "tls: minVersion is newer than maxVersion",
            ),
            (
                "!has(self.tls) || !has(self.tls.cipherSuites) || self.tls.cipherSuites.all(m, self.tls.cipherSuites.exists_one(n, n == m))",
                "tls.cipherSuites: a cipher suite is listed twice",
            ),
            (
                "!has(self.tls) || !has(self.tls.keyExchangeGroups) || self.tls.keyExchangeGroups.all(m, self.tls.keyExchangeGroups.exists_one(n, n == m))",
                "tls.keyExchangeGroups: a group is listed twice",
            ),
        ],
    ),
    (
        "hosts",
        &[
            (
                "!has(self.addresses) || self.addresses.all(n, isCIDR(n))",
                "addresses: expected networks such as 192.0.2.0/24",
            ),
            (
                "!has(self.lostAfter) || duration(self.lostAfter) >= duration('90s') && duration(self.lostAfter) <= duration('24h')",
                "lostAfter: expected 90s to 24h",
            ),
        ],
    ),
    (
        "edge",
        &[(
            "!has(self.forwardClientCertificate) || !has(self.forwardClientCertificate.details) || has(self.forwardClientCertificate.mode) && self.forwardClientCertificate.mode in ['SanitizeSet', 'AppendForward']",
            "forwardClientCertificate.details: allowed only with mode SanitizeSet or AppendForward",
        )],
    ),
    (
        "edgePorts",
        &[
            (
                "self.all(m, self.exists_one(n, n.port == m.port))",
                "a port is listed twice",
            ),
            (
                "self.all(m, !has(m.edge) || !has(m.edge.preset) && !has(m.edge.headerCase) && !has(m.edge.maxResponseHeaders) && !has(m.edge.maxResponseHeadersKib) && !has(m.edge.connectionBufferKib))",
                "preset, headerCase, maxResponseHeaders, maxResponseHeadersKib and connectionBufferKib also affect connections to backends; set them in spec.edge",
            ),
        ],
    ),
    (
        "rotation",
        &[(
            "!has(self.bundleOverlap) || duration(self.bundleOverlap) <= duration('720h')",
            "bundleOverlap: expected 0s to 720h",
        )],
    ),
    (
        "tracing",
        &[(
            "(has(self.mode) && self.mode == 'Enabled') == has(self.provider)",
            "provider: required with mode Enabled, and not allowed otherwise",
        )],
    ),
    (
        "accessLog",
        &[(
            "!has(self.minDuration) || duration(self.minDuration) >= duration('1ms') && duration(self.minDuration) <= duration('24h')",
            "minDuration: expected 1ms to 24h",
        )],
    ),
    (
        "fleet",
        &[
            (
                "!has(self.replicas) || !has(self.workload) || self.workload == 'Deployment'",
                "replicas: allowed only with workload Deployment",
            ),
            (
                "!has(self.tolerations) || self.tolerations.all(t, has(t.key) && t.key != '' || has(t.operator) && t.operator == 'Exists')",
                "tolerations: key: required unless operator is Exists",
            ),
            (
                "!has(self.tolerations) || self.tolerations.all(t, !has(t.value) || t.value == '' || !has(t.operator) || t.operator == 'Equal')",
                "tolerations: value: must be empty with operator Exists",
            ),
            (
                "!has(self.tolerations) || self.tolerations.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",
                "tolerations: tolerationSeconds: allowed only with effect NoExecute",
            ),
        ],
    ),
    (
        "ports",
        &[
            (
                "!has(self.map) || self.map.all(m, self.map.exists_one(n, n.outside == m.outside))",
                "map: an outside port is listed twice",
            ),
            (
                "!has(self.map) || self.map.all(m, self.map.exists_one(n, n.inside == m.inside))",
                "map: an inside port is listed twice",
            ),
        ],
    ),
];

/// Returns the SesameConfiguration CRD.
pub fn configuration_definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let schema = json!({
        "type": "object",
        "description": "Settings for a controller and for Gateways.",
        "required": ["spec"],
        "properties": {"spec": specification(), "status": status()},
    });
    schema::definition(
        (SESAME_GROUP, "v1alpha1"),
        &schema::names(
            "SesameConfiguration",
            "sesameconfigurations",
            &["sesameconfig"],
        ),
        "Namespaced",
        &columns(),
        &schema,
    )
}

fn columns() -> Value {
    let condition = |field: &str| format!(".status.conditions[?(@.type==\"Accepted\")].{field}");
    json!([
        {"name": "Accepted", "type": "string", "jsonPath": condition("status")},
        {"name": "Reason", "type": "string", "jsonPath": condition("reason"), "priority": 1},
        {"name": "Controller", "type": "string", "jsonPath": ".spec.gateway.controllerName"},
        {"name": "Publishing", "type": "string", "jsonPath": ".spec.publishing.type"},
        {"name": "Message", "type": "string", "jsonPath": condition("message"), "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

fn specification() -> Value {
    let mut schema = schema::generate::<SesameConfigurationSpec>();
    for (field, rules) in RULES {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(rule, message)| json!({"rule": rule, "message": message}))
            .collect();
        schema["properties"][field]["x-kubernetes-validations"] = json!(rules);
    }
    schema
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "Status reported by the controller that reads the object.",
        "properties": {
            "conditions": schema::conditions("Accepted: true if the configuration is valid."),
        },
    })
}
