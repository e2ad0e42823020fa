//! Resolves YAML objects, and checks statuses and responses to requests.

mod access_credentials;
mod access_discovery;
mod access_l4_routes;
mod access_logins;
mod access_origins;
mod access_policies;
mod access_reports;
mod access_services;
mod acme;
mod acme_owners;
mod any_routes;
mod any_slices;
mod backend_policies;
mod backend_settings;
mod client_settings;
mod extension_services;
mod gateways_of_a_class;
mod http_proxies;
mod http_proxy_addresses;
mod http_proxy_authorization;
mod http_proxy_clients;
mod http_proxy_conditions;
mod http_proxy_fallback;
mod http_proxy_includes;
mod http_proxy_limits;
mod http_proxy_paths;
mod http_proxy_roots;
mod http_proxy_routes;
mod http_proxy_services;
mod http_proxy_shares;
mod http_proxy_tcp;
mod http_proxy_tls;
mod http_proxy_tokens;
mod http_proxy_unsupported;
mod http_proxy_withdraw;
mod implied_gateway;
mod incremental;
mod ingress_default_backends;
mod ingress_nginx;
mod ingress_nginx_access;
mod ingress_settings;
mod ingress_tls;
mod ingresses;
mod last_good;
mod last_parameters;
mod layer_properties;
mod layers;
mod listener_sets;
mod many_listeners;
mod policies;
mod properties;
mod route_filters;
mod router;
mod routing;
mod rules;
mod served_together;
mod service_limits;
mod services;
mod sizes;
mod statuses;
mod tls;
mod tls_layers;
mod tls_override_rows;
mod tls_overrides;
mod traffic_filters;
mod traffic_limits;
mod traffic_policies;
mod uncovered;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Options, Resolution, resolve};
use sesame_kinds::status::{Condition, ConditionStatus, ConditionType, Reason};
use sesame_kinds::world::{AnyObject, Kind, ObjectKey, World};

const BASE: &str = r"
kind: GatewayClass
metadata: {name: sesame}
spec: {controllerName: projectsesame.io/gateway-controller}
---
kind: Service
metadata: {name: a, namespace: web}
spec: {ports: [{name: http, port: 80}]}
---
kind: EndpointSlice
metadata: {name: a-1, namespace: web, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: http, port: 8080}]
---
kind: Service
metadata: {name: b, namespace: web}
spec: {ports: [{port: 80}]}
---
kind: Service
metadata: {name: c, namespace: web}
spec: {ports: [{port: 80}]}
";

fn decode<T: DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value.clone()).unwrap_or_else(|why| panic!("{why}: {value}")))
}

fn objects(yaml: &str) -> Vec<AnyObject> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    documents
        .iter()
        .filter(|document| !document.is_null())
        .map(|v| match v["kind"].as_str().expect("kind") {
            "GatewayClass" => AnyObject::GatewayClass(decode(v)),
            "Gateway" => AnyObject::Gateway(decode(v)),
            "ListenerSet" => AnyObject::ListenerSet(decode(v)),
            "HTTPRoute" => AnyObject::HttpRoute(decode(v)),
            "GRPCRoute" => AnyObject::GrpcRoute(decode(v)),
            "TLSRoute" => AnyObject::TlsRoute(decode(v)),
            "TCPRoute" => AnyObject::TcpRoute(decode(v)),
            "UDPRoute" => AnyObject::UdpRoute(decode(v)),
            "ReferenceGrant" => AnyObject::ReferenceGrant(decode(v)),
            "IngressClass" => AnyObject::IngressClass(decode(v)),
            "Ingress" => AnyObject::Ingress(decode(v)),
            "HTTPProxy" => AnyObject::HttpProxy(decode(v)),
            "TLSCertificateDelegation" => AnyObject::TlsCertificateDelegation(decode(v)),
            "ExtensionService" => AnyObject::ExtensionService(decode(v)),
            "AccessPolicy" => AnyObject::AccessPolicy(decode(v)),
            "TrafficPolicy" => AnyObject::TrafficPolicy(decode(v)),
            "BackendPolicy" => AnyObject::BackendPolicy(decode(v)),
            "RouteFilter" => AnyObject::RouteFilter(decode(v)),
            "BackendTLSPolicy" => AnyObject::BackendTlsPolicy(decode(v)),
            "Service" => AnyObject::Service(decode(v)),
            "EndpointSlice" => AnyObject::EndpointSlice(decode(v)),
            "Secret" => AnyObject::Secret(decode(v)),
            "ConfigMap" => AnyObject::ConfigMap(decode(v)),
            "Namespace" => AnyObject::Namespace(decode(v)),
            "SesameConfiguration" => AnyObject::SesameConfiguration(decode(v)),
            other => panic!("unknown kind {other}"),
        })
        .collect()
}

fn world(yaml: &str) -> World {
    world_of(objects(BASE).into_iter().chain(objects(yaml)))
}

fn world_of(objects: impl IntoIterator<Item = AnyObject>) -> World {
    let mut world = World::default();
    for object in objects {
        world.insert(object);
    }
    world
}

fn resolved(yaml: &str) -> Resolution {
    resolve(&world(yaml), &Options::default())
}

fn gateway(listeners: &str) -> String {
    format!(
        "---\nkind: Gateway\nmetadata: {{name: gw, namespace: web, generation: 7}}\nspec:\n  gatewayClassName: \
         sesame\n  listeners:\n{}\n",
        indent(listeners, 2)
    )
}

/// The parent is `gw` unless `spec` has `parentRefs`.
fn route(name: &str, spec: &str) -> String {
    let parents = if spec.contains("parentRefs") {
        ""
    } else {
        "  parentRefs: [{name: gw}]\n"
    };
    format!(
        "---\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: web, generation: 3}}\nspec:\n{parents}{}\n",
        indent(spec, 2)
    )
}

fn indent(text: &str, width: usize) -> String {
    let lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("{:width$}{line}", ""))
        .collect();
    lines.join("\n")
}

const HTTP: &str = "- {name: http, port: 80, protocol: HTTP}";

#[derive(Debug, PartialEq, Eq)]
enum ConditionState {
    True,
    False(Reason),
    Unknown,
    Absent,
}

fn holds(conditions: &[Condition], type_: ConditionType) -> ConditionState {
    let Some(condition) = conditions.iter().find(|condition| condition.type_ == type_) else {
        return ConditionState::Absent;
    };
    match condition.status {
        ConditionStatus::True => ConditionState::True,
        ConditionStatus::False => ConditionState::False(condition.reason),
        ConditionStatus::Unknown => ConditionState::Unknown,
    }
}

impl Resolution {
    fn gateway_conditions(&self) -> &[Condition] {
        let statuses = self.statuses.gateways.values().next().expect("a Gateway");
        &statuses.conditions
    }

    fn listener_conditions(&self, name: &str) -> &[Condition] {
        let status = self.statuses.gateways.values().next().expect("a Gateway");
        let listener = status
            .listeners
            .iter()
            .find(|l| l.name == name)
            .expect("listener");
        &listener.conditions
    }

    fn attached(&self, name: &str) -> i32 {
        let status = self.statuses.gateways.values().next().expect("a Gateway");
        status
            .listeners
            .iter()
            .find(|l| l.name == name)
            .expect("listener")
            .attached_routes
    }

    fn route_conditions(&self, name: &str) -> &[Condition] {
        let key = ObjectKey {
            kind: Kind::HttpRoute,
            name: sesame_kinds::api::NamespacedName::new("web", name),
        };
        &self
            .statuses
            .routes
            .get(&key)
            .expect("route status")
            .parents[0]
            .conditions
    }
}
