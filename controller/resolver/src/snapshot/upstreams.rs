//! Collects the Backends that route tables, tracing and access logs use, and applies client keys
//! and mesh settings to them.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use sesame_proto::schema::{Backend, BackendTls, EndpointSet, WeightedBackend, route::Action};

use crate::backends::{self, Backends, MeshTransport};
use crate::context::ResolveContext;
use crate::tables::reached_by::ReachedBy;
use crate::tables::{Tables, backends_of, session_backends_of};

pub(crate) struct Upstreams {
    /// Sorted by name.
    pub(crate) backends: Vec<Backend>,
    /// Sorted by name. Backends for the same port share an endpoint set.
    pub(crate) endpoints: Vec<EndpointSet>,
}

/// TLS settings for the mesh, by Gateway name. `None` if the mesh's traffic is rejected.
pub(crate) type MeshTls<'a> = BTreeMap<&'a str, Option<&'a BackendTls>>;

/// A Backend with a client key or mesh gets its own name, and references to it are updated.
pub(crate) fn find<'w>(
    tables: &mut Tables,
    collectors: &mut [&mut String],
    all: &Backends<'w>,
    meshes: &MeshTls<'_>,
    cx: &mut ResolveContext<'w, '_>,
) -> Upstreams {
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    let (mut names, with_sessions) = names(tables);
    let collector_names = collectors.iter().map(|it| (**it).clone());
    let fallbacks = names.iter().filter_map(|noted| fallback(noted, all));
    let added: Vec<String> = collector_names.chain(fallbacks).collect();
    for name in &added {
        if let Err(place) = names.binary_search(&name.as_str()) {
            names.insert(place, name);
        }
    }
    let mut found: Vec<Backend> = Vec::with_capacity(names.len());
    let mut endpoints: Vec<EndpointSet> = Vec::with_capacity(names.len());
    for noted in names {
        let (name, ReachedBy { client_key, mesh }) = ReachedBy::split(noted);
        // Also reject traffic if the mesh is not in `meshes`.
        let transport = match mesh.map(|mesh| meshes.get(mesh).copied().flatten()) {
            None => MeshTransport::Plain,
            Some(Some(tls)) => MeshTransport::Mesh(tls),
            Some(None) => MeshTransport::Refused,
        };
        let backend = all.named(name, cx).map(|(backend, set)| {
            let reached = backends::reached_by(backend, client_key, transport);
            if !reached.endpoints.is_empty() {
                endpoints.push(set);
            }
            reached
        });
        if name != noted {
            let new = backend.as_ref().map_or(name, |backend| &backend.name);
            renamed.insert(noted.to_owned(), new.to_owned());
        }
        let Some(mut backend) = backend else {
            continue;
        };
        // Set the key only after the Backend has its name. Otherwise, a route that starts to use
        // sessions would rename the Backend for other routes.
        if with_sessions.contains(&noted) {
            backend.session_key = all.session_key(name);
        }
        backend.fallback = fallback(noted, all).unwrap_or_default();
        found.push(backend);
    }
    for backend in &mut found {
        if let Some(new) = renamed.get(&backend.fallback) {
            backend.fallback.clone_from(new);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|again, kept| {
        let same = again.name == kept.name;
        if same && !again.session_key.is_empty() {
            kept.session_key = mem::take(&mut again.session_key);
        }
        same
    });
    if !renamed.is_empty() {
        rename(tables, &renamed);
        for collector in collectors {
            if let Some(new) = renamed.get(collector.as_str()) {
                new.clone_into(collector);
            }
        }
    }
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints.dedup_by(|a, b| a.name == b.name);
    Upstreams {
        backends: found,
        endpoints,
    }
}

/// Returns the fallback's name. It is reached like the Backend itself.
fn fallback(noted: &str, all: &Backends<'_>) -> Option<String> {
    let (name, reached_by) = ReachedBy::split(noted);
    let mut fallback = Some(all.fallback_of(name).to_owned()).filter(|it| !it.is_empty())?;
    reached_by.append_to(&mut fallback);
    Some(fallback)
}

/// Returns all names, and the names of Backends with session persistence.
fn names(tables: &Tables) -> (Vec<&str>, BTreeSet<&str>) {
    let (mut names, mut with_sessions) = (Vec::new(), BTreeSet::new());
    for host in tables
        .route_tables
        .iter()
        .flat_map(|table| &table.virtual_hosts)
    {
        backends_of(host, &mut names);
        session_backends_of(host, &mut with_sessions);
    }
    let l4_routes = tables
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
    (names, with_sessions)
}

fn rename(tables: &mut Tables, names: &BTreeMap<String, String>) {
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
    let routes = tables
        .route_tables
        .iter_mut()
        .flat_map(|table| &mut table.virtual_hosts)
        .flat_map(|host| {
            for auth in &mut host.external_auth {
                one(&mut auth.backend);
            }
            &mut host.routes
        });
    for route in routes {
        for auth in &mut route.external_auth {
            one(&mut auth.backend);
        }
        if let Some(Action::Forward(forward)) = &mut route.action {
            shares(&mut forward.backends);
            for mirror in &mut forward.mirrors {
                one(&mut mirror.backend);
            }
        }
    }
    let l4_routes = tables
        .ports
        .iter_mut()
        .flat_map(|port| &mut port.listeners)
        .flat_map(|listener| &mut listener.l4_routes);
    for route in l4_routes {
        shares(&mut route.backends);
    }
}
