//! The Backends that the tables of one Gateway send to, as this Gateway reaches them.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema::{Backend, EndpointSet, WeightedBackend, route::Action};

use super::backends::{self, Backends};
use super::context::Context;
use super::tables::{self, Served};

/// What a Gateway sends to.
pub(super) struct Reached {
    /// By name.
    pub(super) backends: Vec<Backend>,
    /// By name.
    pub(super) endpoints: Vec<EndpointSet>,
}

/// Finds the Backends. Those that speak TLS are shown `client_key`, and have names of their own then, which the
/// tables are told.
pub(super) fn backends<'w>(
    served: &mut Served,
    client_key: Option<&str>,
    all: &mut Backends<'w>,
    cx: &mut Context<'w, '_>,
) -> Reached {
    let mut found: Vec<Backend> = Vec::new();
    let mut endpoints: Vec<EndpointSet> = Vec::new();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    let mut with_sessions = BTreeSet::new();
    for table in &served.route_tables {
        for host in &table.virtual_hosts {
            tables::session_backends_of(host, &mut with_sessions);
        }
    }
    for name in names(served) {
        let Some((backend, set)) = all.named(name, cx) else {
            continue;
        };
        endpoints.push(set.clone());
        let shown = client_key.and_then(|key| backends::showing_key(backend, key));
        let mut backend = match shown {
            Some(shown) => {
                renamed.insert(name.to_owned(), shown.name.clone());
                shown
            }
            None => backend.clone(),
        };
        // After it has its name: a route that starts to keep sessions must not move other requests to another Backend.
        if with_sessions.contains(name) {
            backend.session_key = all.session_key(name);
        }
        found.push(backend);
    }
    if !renamed.is_empty() {
        found.sort_by(|a, b| a.name.cmp(&b.name));
        rename(served, &renamed);
    }
    // Backends of one port share a set.
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints.dedup_by(|a, b| a.name == b.name);
    Reached {
        backends: found,
        endpoints,
    }
}

/// The names that the tables have, in order.
fn names(served: &Served) -> Vec<&str> {
    let mut names = Vec::new();
    for host in served
        .route_tables
        .iter()
        .flat_map(|table| &table.virtual_hosts)
    {
        tables::backends_of(host, &mut names);
    }
    let l4_routes = served
        .ports
        .iter()
        .flat_map(|port| &port.listeners)
        .flat_map(|listener| &listener.l4_routes);
    for backend in l4_routes.flat_map(|route| &route.backends) {
        if !backend.backend.is_empty() {
            names.push(backend.backend.as_str());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn rename(served: &mut Served, names: &BTreeMap<String, String>) {
    let one = |name: &mut String| {
        if let Some(new) = names.get(name.as_str()) {
            name.clone_from(new);
        }
    };
    let shares = |backends: &mut Vec<WeightedBackend>| {
        for share in backends {
            one(&mut share.backend);
        }
    };
    let routes = served
        .route_tables
        .iter_mut()
        .flat_map(|table| &mut table.virtual_hosts)
        .flat_map(|host| &mut host.routes);
    for route in routes {
        if let Some(Action::Forward(forward)) = &mut route.action {
            shares(&mut forward.backends);
            for mirror in &mut forward.mirrors {
                one(&mut mirror.backend);
            }
        }
    }
    let l4_routes = served
        .ports
        .iter_mut()
        .flat_map(|port| &mut port.listeners)
        .flat_map(|listener| &mut listener.l4_routes);
    for route in l4_routes {
        shares(&mut route.backends);
    }
}
