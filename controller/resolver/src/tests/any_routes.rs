//! Generates Gateways and routes for property tests for incremental resolution. The controller's
//! tests include this file too.

use proptest::prelude::*;

pub(crate) const OBJECTS: &str = r"
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: sesame},
 spec: {controllerName: projectsesame.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge},
 spec: {gatewayClassName: sesame, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: wide},
 spec: {gatewayClassName: sesame, allowedListeners: {namespaces: {from: All}}, listeners: [
  {name: all, port: 80, protocol: HTTP, hostname: '*.example.com'},
  {name: one, port: 80, protocol: HTTP, hostname: a.example.com},
  {name: other, port: 81, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {name: set},
 spec: {parentRef: {name: wide}, listeners: [{name: more, port: 82, protocol: HTTP, hostname: '*.b.example.com'},
  {name: taken, port: 80, protocol: HTTP, hostname: x.b.example.com}]}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: wide},
 spec: {controller: projectsesame.io/ingress-controller, parameters: {apiGroup: gateway.networking.k8s.io,
  kind: Gateway, scope: Namespace, namespace: default, name: wide}}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: near}, spec: {ingressClassName: wide,
 tls: [{hosts: [a.example.com], secretName: none}], rules: [{host: a.example.com, http: {paths: [
  {path: /d, pathType: Prefix, backend: {service: {name: s5, port: {number: 80}}}}]}}]}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: far}, spec: {ingressClassName: wide,
 tls: [{secretName: none}, {hosts: [a.example.com], secretName: other}], rules: [{host: far.example.org, http: {paths: [
  {path: /, pathType: Prefix, backend: {service: {name: s5, port: {number: 80}}}}]}}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {name: policy},
 spec: {targetRefs: [{group: '', kind: Service, name: s2}], validation: {hostname: s2, wellKnownCACertificates: System}}}
---
{apiVersion: v1, kind: Service, metadata: {name: s0}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s1}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s2}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s3}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s5}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s4}, spec: {ports: [{port: 80}, {port: 81}]}}
";

fn picked(from: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let some = prop::collection::vec(prop::sample::select(from), 0..=most);
    some.prop_map(|some| some.join(", "))
}

fn mostly(good: &'static [&'static str], bad: &'static str) -> impl Strategy<Value = &'static str> {
    prop_oneof![9 => prop::sample::select(good), 1 => Just(bad)]
}

pub(crate) fn any_place() -> impl Strategy<Value = String> {
    let parents = picked(
        &[
            "{name: edge}",
            "{name: edge}",
            "{name: edge}",
            "{name: wide}",
            "{name: wide, sectionName: one}",
            "{name: wide, port: 81}",
            "{kind: ListenerSet, name: set}",
            "{name: none}",
        ],
        3,
    );
    let hostnames = picked(
        &[
            "a.example.com",
            "a.example.com",
            "b.example.com",
            "b.example.com",
            "x.b.example.com",
            "'*.example.com'",
            "'*.b.example.com'",
            "'*.com'",
            // Invalid. If the route might be security-relevant, requests for the hostname that was
            // probably intended are rejected.
            "B.example.com",
        ],
        2,
    );
    (0..3_usize, parents, hostnames).prop_map(|(age, parents, hostnames)| {
        format!(
            "creationTimestamp: '202{age}-01-01T00:00:00Z'}}, \
             spec: {{parentRefs: [{parents}], hostnames: [{hostnames}]"
        )
    })
}

fn matched_path(kind: &str, path: &str) -> String {
    let value = if kind == "type: RegularExpression" {
        "'[ab]{1400}'"
    } else {
        path
    };
    format!("{{path: {{{kind}, value: {value}}}}}")
}

/// Generates rules, each as an HTTPRoute rule and as a GRPCRoute rule. Most rules are valid, and
/// most forward to a single Service.
pub(crate) fn any_rules() -> impl Strategy<Value = Vec<[String; 2]>> {
    let backends = prop_oneof![
        12 => Just("{name: s0, port: 80}"),
        1 => Just("{name: s0, port: 80}, {name: none, port: 80}"),
        1 => Just("{name: s0, port: 80}, {name: s1, port: 80, weight: 3}"),
        1 => Just("{name: s0, port: 80}, {name: s1, port: 80, weight: 0}"),
        1 => Just("{name: s2, port: 80}"),
        // Rarely used, so changes often add a Service's first reference or remove its last.
        1 => Just("{name: s3, port: 80}"),
        1 => Just("{name: s4, port: 80}"),
        1 => Just("{name: s0, port: 80}, {name: s4, port: 81}"),
    ];
    let header = mostly(&["a", "b"], "'no header'");
    let path = mostly(&["/", "/a", "/a/b", "/c", "/d"], "no path");
    let kind = prop_oneof![
        4 => Just("type: PathPrefix"),
        4 => Just("type: Exact"),
        // Expensive: only a few of these expressions fit within a virtual host's cost limit.
        2 => Just("type: RegularExpression"),
    ];
    let protects = prop::bool::weighted(0.2);
    let rule = (backends, header, path, kind, protects);
    let rule = rule.prop_map(|(backends, header, path, kind, protects)| {
        let extension = if protects {
            ", {type: ExtensionRef, extensionRef: {group: example.com, kind: Filter, name: all}}"
        } else {
            ""
        };
        let filters = format!(
            "filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: {header}, value: v}}]}}}}{extension}]"
        );
        [
            matched_path(kind, path),
            format!("{{headers: [{{name: x, value: {path}}}]}}"),
        ]
        .map(|matched| format!("{{matches: [{matched}], {filters}, backendRefs: [{backends}]}}"))
    });
    prop::collection::vec(rule, 1..3)
}

/// Every third route is a GRPCRoute.
pub(crate) fn version(name: usize, place: &str, rules: &[[String; 2]]) -> String {
    let grpc = usize::from(name % 3 == 2);
    let kind = ["HTTPRoute", "GRPCRoute"][grpc];
    let rules: Vec<&str> = rules.iter().map(|rule| rule[grpc].as_str()).collect();
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: r{name}, {place}, rules: [{}]}}}}",
        rules.join(", ")
    )
}
