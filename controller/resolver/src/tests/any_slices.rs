//! Generates EndpointSlices for property tests of incremental resolution. The controller's tests
//! include this file too.

use proptest::prelude::*;

/// Includes invalid addresses.
pub(crate) const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "10.0.0.2",
    "127.0.0.1",
    "10.0.0.3",
    "no address",
    "10.1.0.1",
];
/// Includes `FQDN`, which is not supported.
pub(crate) const KINDS: &[&str] = &["IPv4", "IPv4", "IPv4", "FQDN"];

/// Routes of both Gateways share Services, and some Service ports share a number or name.
pub(crate) const OBJECTS: &str = r"
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: sesame},
 spec: {controllerName: projectsesame.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge},
 spec: {gatewayClassName: sesame, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: udp},
 spec: {gatewayClassName: sesame, listeners: [{name: dns, port: 53, protocol: UDP}, {name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web},
 spec: {parentRefs: [{name: edge}, {name: udp}], rules: [{backendRefs: [{name: s0, port: 80}, {name: s1, port: 53}]}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: api},
 spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: s0, port: 81}, {name: s2, port: 80}, {name: none, port: 80}]}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: UDPRoute, metadata: {name: dns},
 spec: {parentRefs: [{name: udp}], rules: [{backendRefs: [{name: s1, port: 53}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s0},
 spec: {ports: [{name: a, port: 80}, {name: b, port: 80}, {name: b, port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s1},
 spec: {ports: [{name: a, port: 53, protocol: UDP}, {name: b, port: 53, protocol: TCP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s2}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s3}, spec: {ports: [{port: 80}]}}
";

pub(crate) fn any_slice(
    addresses: &'static [&'static str],
    kinds: &'static [&'static str],
) -> impl Strategy<Value = (bool, String)> {
    let endpoint = (prop::sample::select(addresses), 0..4_usize).prop_map(|(address, state)| {
        let conditions = [
            "{}",
            "{ready: true}",
            "{ready: false}",
            "{ready: false, serving: true, terminating: true}",
        ][state];
        format!("{{addresses: [\"{address}\"], conditions: {conditions}}}")
    });
    let port = (0..3_usize, 0..3_usize, 8000..8003).prop_map(|(name, protocol, number)| {
        let (name, protocol) = (["\"\"", "a", "b"][name], ["\"\"", "TCP", "UDP"][protocol]);
        format!("{{name: {name}, protocol: {protocol}, port: {number}}}")
    });
    let kind = prop::sample::select(kinds);
    (
        any::<bool>(),
        0..8_usize,
        0..5_usize,
        kind,
        prop::collection::vec(endpoint, 0..40),
        prop::collection::vec(port, 0..4),
    )
        .prop_map(|(there, name, service, kind, endpoints, ports)| {
            let (endpoints, ports) = (endpoints.join(", "), ports.join(", "));
            let yaml = format!(
                "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: slice-{name}, \
                 labels: {{kubernetes.io/service-name: s{service}}}}}, addressType: {kind}, \
                 endpoints: [{endpoints}], ports: [{ports}]}}"
            );
            (there, yaml)
        })
}
