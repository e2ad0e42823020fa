//! `tls` and `tcp` of a VirtualService become TLSRoutes and TCPRoutes.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing;
use super::backends::DestinationUser;
use super::gateways::PlacedServer;
use super::hosts::Bound;
use super::matches::{MatchScope, SIDECARS, skip_sources};
use super::{Mesh, backends};

const API: &str = "gateway.networking.k8s.io/v1";

pub(super) fn convert(
    draft: &mut Draft,
    mesh: &mut Mesh,
    bound: &Bound,
    (id, metadata): (&ObjectId, &Map<String, Value>),
    spec: &mut RemainingFields,
) {
    let mut number = 0;
    for (list, kind, protocol) in [("tls", "TLSRoute", "TLS"), ("tcp", "TCPRoute", "TCP")] {
        for field in spec.list(list) {
            let mut fields = field.fields();
            let matched = conditions(&mut fields, kind, (bound, &id.namespace));
            let backends = destinations(draft, mesh, (id, kind), fields.list("route"));
            let Some((hosts, port)) = matched else {
                continue;
            };
            // Connections without TLS, or with TLS that ends at the gateway, reach `tcp`.
            let fits = |it: &&PlacedServer| {
                let protocols = [protocol, if kind == "TCPRoute" { "TLS" } else { "" }];
                protocols.contains(&it.protocol) && port.is_none_or(|port| it.port == port)
            };
            let mut servers: Vec<&PlacedServer> = bound.servers.iter().filter(fits).collect();
            let has_tls = servers.iter().any(|it| it.protocol == "TLS");
            if kind == "TCPRoute" && has_tls {
                servers.retain(|it| it.protocol == "TLS");
            }
            if servers.is_empty() || backends.is_empty() {
                let reason = "no server of the Gateways takes such connections";
                fields.refuse("match", reason, "correct the Gateway or the match");
                continue;
            }
            let parents: Vec<Value> = servers.iter().map(|it| it.parent(&id.namespace)).collect();
            let mut route = json!({"parentRefs": parents, "rules": [{"backendRefs": backends}]});
            let kind = if has_tls { "TLSRoute" } else { kind };
            if kind == "TLSRoute" {
                let own = bound.hosts.iter().filter(|it| !it.is_empty()).cloned();
                let hosts = if hosts.is_empty() {
                    own.collect()
                } else {
                    hosts
                };
                route["hostnames"] = json!(hosts);
            }
            for server in servers {
                let gateway = ObjectId::new("Gateway", "default", &server.class);
                let streams = mesh.streams.entry(gateway).or_default();
                streams.insert((id.clone(), list));
            }
            number += 1;
            let name = match number {
                1 => id.name.clone(),
                number => format!("{}-{number}", id.name),
            };
            draft.add(
                id,
                json!({
                    "apiVersion": API,
                    "kind": kind,
                    "metadata": routing::named(metadata, &name),
                    "spec": route,
                }),
            );
        }
    }
}

/// Returns server names and the port, or `None` if no connection of the Gateways matches.
fn conditions(
    fields: &mut RemainingFields,
    kind: &str,
    (bound, namespace): (&Bound, &str),
) -> Option<(Vec<String>, Option<i64>)> {
    let (mut hosts, mut port) = (Vec::new(), None);
    let list = fields.list("match");
    let is_open = list.is_empty();
    let mut is_bound = is_open;
    for field in list {
        let scope = bound.scope(field.value(), namespace);
        if scope == MatchScope::None {
            field.unneeded(SIDECARS);
            continue;
        }
        is_bound = true;
        let mut matched = field.fields();
        skip_sources(&mut matched);
        hosts.extend(matched.texts("sniHosts", &format!("{kind} hostnames")));
        let to = format!("{kind} parentRefs");
        let own = matched.number("port", &to);
        if port.is_some() && own != port {
            matched.refuse("port", "a route has one port", "split the route");
        }
        port = own.or(port);
        if let Some(field) = matched.take("gateways") {
            if scope == MatchScope::All {
                field.carry(&to);
            } else {
                field.refuse("the match has other Gateways", "split the VirtualService");
            }
        }
        for (name, remedy) in [
            ("destinationSubnets", "split the Gateway"),
            ("sourceSubnet", "use ipFilter of an AccessPolicy"),
            ("sourceSubnets", "use ipFilter of an AccessPolicy"),
        ] {
            if let Some(field) = matched.take(name) {
                field.refuse("a route matches no addresses", remedy);
            }
        }
    }
    is_bound.then_some((hosts, port))
}

fn destinations(
    draft: &mut Draft,
    mesh: &mut Mesh,
    (user, kind): (&ObjectId, &str),
    list: Vec<TakenField>,
) -> Vec<Value> {
    let is_single = list.len() == 1;
    let found = list.into_iter().filter_map(|field| {
        let mut fields = field.fields();
        let weight = fields.number("weight", &format!("{kind} rules.backendRefs"));
        let weight = if is_single {
            1
        } else {
            weight.unwrap_or_default()
        };
        let field = fields.take("destination")?;
        let user = DestinationUser {
            id: user,
            kind,
            namespace: &user.namespace,
        };
        backends::destination(draft, mesh, &user, field, weight)
    });
    found.collect()
}
