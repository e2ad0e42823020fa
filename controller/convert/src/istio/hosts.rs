//! Gateways and hosts of a VirtualService.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::draft::ObjectId;
use super::super::fields::RemainingFields;
use super::super::routing;
use super::super::routing::order::{HostUnit, OrderedRule};
use super::gateways::PlacedServer;
use super::routes::Visit;
use super::{Mesh, NETWORKING, id_in};

const PARENTS: &str = "HTTPRoute parentRefs";
const HOSTS: &str = "HTTPRoute hostnames";
pub(super) const MESH: &str = "mesh";

/// Hosts and servers of a VirtualService.
pub(super) struct Bound {
    pub(super) gateways: Vec<ObjectId>,
    pub(super) hosts: Vec<String>,
    pub(super) servers: Vec<PlacedServer>,
}

pub(super) fn add_units(mesh: &mut Mesh, visit: &Visit, bound: &Bound, rules: &[OrderedRule]) {
    let is_http = |it: &&PlacedServer| ["HTTP", "HTTPS"].contains(&it.protocol) && !it.redirects;
    for server in bound.servers.iter().filter(is_http) {
        for host in &bound.hosts {
            let Some(host) = common_host(host, &server.host) else {
                continue;
            };
            mesh.units.push(HostUnit {
                owner: visit.id.clone(),
                host,
                parent: server.parent(&visit.id.namespace),
                rules: rules.to_vec(),
            });
        }
    }
}

/// Returns the more specific of two hosts if the other covers it.
fn common_host(a: &str, b: &str) -> Option<String> {
    let covers = |wide: &str, host: &str| {
        let suffix = wide.strip_prefix('*');
        wide.is_empty() || wide == host || suffix.is_some_and(|it| host.ends_with(it))
    };
    match (covers(a, b), covers(b, a)) {
        (_, true) => Some(a.to_owned()),
        (true, _) => Some(b.to_owned()),
        _ => None,
    }
}

/// Returns namespace and name of a Gateway.
pub(super) fn gateway_name<'n>(namespace: &'n str, text: &'n str) -> (&'n str, &'n str) {
    match (text.split_once('/'), text.split_once('.')) {
        (Some((".", name)), _) => (namespace, name),
        (Some(both), _) => both,
        // The old form is name.namespace.svc.cluster.local.
        (None, Some((name, rest))) => (rest.split('.').next().unwrap_or(rest), name),
        (None, None) => (namespace, text),
    }
}

/// Reads Gateways and hosts. Returns `None` if no request reaches the VirtualService.
pub(super) fn bound(mesh: &Mesh, id: &ObjectId, spec: &mut RemainingFields) -> Option<Bound> {
    let mut servers: Vec<PlacedServer> = Vec::new();
    let mut gateways = Vec::new();
    let mut namespaces = BTreeSet::new();
    for field in spec.list("gateways") {
        let name = field.as_str().to_owned();
        if name == MESH {
            field.unneeded("routes for sidecars are left to Istio");
            continue;
        }
        let (namespace, own) = gateway_name(&id.namespace, &name);
        let gateway = id_in(NETWORKING, "Gateway", namespace, own);
        let Some(found) = mesh.servers.get(&gateway) else {
            field.refuse("the Gateway is not in the input", "add it to the input");
            continue;
        };
        namespaces.insert(namespace.to_owned());
        gateways.push(gateway);
        servers.extend(found.iter().cloned());
        field.carry(PARENTS);
    }
    if let Some(field) = spec.take("exportTo") {
        let list = field.value().as_array().cloned().unwrap_or_default();
        let visible = |namespace: &String| {
            let mut list = list.iter().filter_map(Value::as_str);
            list.any(|it| it == "*" || it == namespace || it == "." && *namespace == id.namespace)
        };
        if namespaces.iter().all(visible) {
            field.unneeded("its Gateways may use the VirtualService");
        } else {
            let reason = "its Gateways may not use the VirtualService";
            field.refuse(reason, "remove the Gateways, or accept the loss");
        }
    }
    servers.retain(|it| it.namespace.as_ref().is_none_or(|it| *it == id.namespace));
    let mut hosts = Vec::new();
    for field in spec.list("hosts") {
        let host = field.as_str().to_ascii_lowercase();
        let host = match host.as_str() {
            "*" => String::new(),
            short if !short.contains('.') => format!("{short}.{}.svc.cluster.local", id.namespace),
            _ => host,
        };
        if !servers
            .iter()
            .any(|it| common_host(&host, &it.host).is_some())
        {
            field.unneeded("no server of its Gateways has the host");
            continue;
        }
        let is_covered = routing::covering(&host)
            .iter()
            .skip(1)
            .any(|it| mesh.hosts.contains_key(it));
        if host.starts_with("*.") {
            field.differ(HOSTS, "the wildcard also matches several labels");
        } else if is_covered {
            let difference = "requests that match no route reach the routes of the wider host";
            field.differ(HOSTS, difference);
        } else {
            field.carry(HOSTS);
        }
        hosts.push(host);
    }
    (!hosts.is_empty()).then_some(Bound {
        gateways,
        hosts,
        servers,
    })
}
