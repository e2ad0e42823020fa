//! Renders one cluster per backend.
//!
//! A backend has no cluster if Envoy could not connect as required, for example without its trust
//! bundle. Its requests are rejected and never sent to an unverified server.

mod balance;
mod breakers;
mod connections;
pub(crate) mod endpoints;
pub(crate) mod fallback;
pub(crate) mod fleet;
mod hashing;
mod health;
pub(crate) mod shares;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message as _;
use sesame_proto::schema::Backend;

use self::endpoints::{Extras, Sets};
use crate::context::{EndpointRules, RenderContext};
use crate::http::{protocol_options, sessions};
use crate::rendered::{RenderProblems, Resource, by_name};
use crate::{config_sources, tls, wrappers};

pub(crate) fn render(
    backends: &[&Backend],
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    let mut clusters = Vec::with_capacity(backends.len());
    for backend in backends {
        let rendered = for_backend(backend, sets, context);
        let refused = "its share of requests is rejected";
        let rendered = problems.value(&backend.name, rendered, refused);
        clusters.extend(rendered.into_iter().flatten());
    }
    by_name(clusters, problems)
}

pub(crate) fn for_backend(
    backend: &Backend,
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Result<Vec<Resource>, String> {
    Ok(all_of(backend, &cluster(backend, sets, context)?))
}

pub(crate) fn names_of(backend: &Backend) -> impl Iterator<Item = String> {
    let cluster = Cluster {
        name: backend.name.clone(),
        ..Default::default()
    };
    all_of(backend, &cluster).into_iter().map(|it| it.name)
}

fn all_of(backend: &Backend, cluster: &Cluster) -> Vec<Resource> {
    let mut clusters = Vec::with_capacity(1);
    if !backend.fallback.is_empty() {
        let both = fallback::cluster(cluster, &backend.fallback);
        clusters.push(Resource::new(&both.name, &both));
    }
    if !backend.session_key.is_empty() {
        let clusters_of_sessions = sessions::clusters(cluster);
        clusters.extend(clusters_of_sessions.map(|it| Resource::new(&it.name, &it)));
    }
    clusters.push(Resource::new(&cluster.name, cluster));
    clusters
}

fn inline(backend: &Backend, sets: &Sets<'_>, rules: &EndpointRules) -> ClusterLoadAssignment {
    let set = sets.get(backend.endpoints.as_str()).copied();
    let protocol = backend.protocol();
    let name = &backend.name;
    let extras = Extras::of(backend);
    let mut assignment = endpoints::assignment(name, set, protocol, extras, rules);
    health::check_port(&mut assignment, backend.health_port());
    assignment
}

/// Returns an empty list if the endpoints are in a file, or `None` if `known` cannot be decoded.
pub(crate) fn with_endpoints(
    known: &Resource,
    backend: &Backend,
    sets: &Sets<'_>,
    rules: &EndpointRules,
) -> Option<Vec<Resource>> {
    let mut cluster = Cluster::decode(&known.bytes[..]).ok()?;
    if cluster.load_assignment.is_none() {
        return Some(Vec::new());
    }
    cluster.load_assignment = Some(inline(backend, sets, rules));
    Some(all_of(backend, &cluster))
}

fn cluster(
    backend: &Backend,
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Result<Cluster, String> {
    let Backend {
        name,
        endpoints,
        protocol: _,
        tls: backend_tls,
        session_key: _,
        idle_timeout_ms,
        load_balancer,
        health_check,
        outlier,
        breaker,
        connections,
        panic_percent,
        // Applies to the endpoints.
        zone_preference: _,
        weighted,
        // Has its own cluster.
        fallback: _,
    } = backend;
    let protocol = backend.protocol();
    if name.is_empty() {
        return Err("a backend has no name".to_owned());
    }
    let transport_socket = backend_tls
        .as_ref()
        .map(|tls| tls::upstream(tls, protocol, context))
        .transpose()?;
    let mut cluster = Cluster {
        name: name.clone(),
        per_connection_buffer_limit_bytes: wrappers::uint32(protocol_options::connection_buffer(
            context.edge,
        )),
        circuit_breakers: Some(breakers::render(
            &context.options.limits,
            breaker.as_deref(),
        )),
        common_lb_config: health::balancing(*panic_percent, *weighted),
        transport_socket,
        outlier_detection: outlier.as_deref().map(health::ejection),
        ..Default::default()
    };
    if let Some(balancer) = load_balancer {
        balance::into(&mut cluster, balancer)?;
    }
    if let Some(check) = health_check {
        health::into(&mut cluster, check, protocol)?;
    }
    let connections = connections.as_deref().copied().unwrap_or_default();
    let edge = context.edge;
    connections::into(&mut cluster, &connections, *idle_timeout_ms, protocol, edge);
    // A snapshot from another source may lack an endpoint set. Requests to the backend then get
    // 503.
    if context.subscriptions.endpoints.contains(name.as_str()) && !endpoints.is_empty() {
        cluster.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        ));
        cluster.eds_cluster_config = Some(cluster::EdsClusterConfig {
            eds_config: Some(config_sources::file(&context.options.layout.eds(endpoints))),
            service_name: endpoints.clone(),
        });
    } else {
        // Without a discovery type, the cluster is `STATIC`.
        cluster.load_assignment = Some(inline(backend, sets, &context.options.endpoints));
    }
    Ok(cluster)
}
