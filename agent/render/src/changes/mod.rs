//! Incremental rendering, which reuses the unaffected parts of the previous rendering.
//!
//! Never return a result that differs from a full rendering. Return `None` if it might differ.

pub(crate) mod backend_patch;
mod route_table_patch;

use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::{Backend, Edge, EndpointSet, RateLimit};

use crate::budget::Subscriptions;
use crate::clusters::{self, endpoints};
use crate::context::{RenderContext, RenderOptions};
use crate::http::{protocol_options, request_filters};
use crate::rendered::{RenderProblems, Rendered, Resource, find};
use crate::whole;

/// Maximum number of cluster searches. Beyond it, a full rendering costs little more.
const MAX_SEARCHES: usize = 16;

/// Renders a Gateway if only its route tables changed. Returns `None` if anything else might be
/// affected; otherwise the result equals a full [`render`](crate::render).
pub fn routes_after(
    rendered: &Rendered,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
    options: &RenderOptions,
) -> Option<Rendered> {
    // A problem may have affected how other routes were rendered.
    if !rendered.problems.is_empty() {
        return None;
    }
    let rest = now.rest();
    let context = RenderContext {
        options,
        gateway: "",
        edge: rest.edge.unwrap_or_default(),
        stream_idle_ms: protocol_options::shortest_stream_idle_ms(rest),
        // Route tables do not depend on these two fields.
        tracing: None,
        log_output: None,
        measured_routes: &rest.measured_routes,
        rate_limits: RateLimit::usable(&rest.rate_limits),
        fleet_hosts: rendered.fleet_hosts,
        filters: request_filters::of_snapshot(rest.filters.as_deref(), &rest.shared_filters),
        // All secrets that a route may use are in files; otherwise, there is a problem.
        subscriptions: Subscriptions::default(),
        secrets: &rendered.secrets,
        clusters: &rendered.clusters,
        route_tables: &[],
    };
    let (before, now) = (before.route_tables(), now.route_tables());
    Some(Rendered {
        route_tables: route_table_patch::render(&rendered.route_tables, before, now, &context)?,
        ..rendered.clone()
    })
}

/// Renders a Gateway if only its route tables, backends and endpoints changed. Returns `None` if
/// anything else might be affected.
pub fn backends_after(
    rendered: &Rendered,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
    options: &RenderOptions,
) -> Option<Rendered> {
    if !rendered.problems.is_empty() {
        return None;
    }
    let snapshots = [before, now];
    backend_patch::render(rendered, snapshots, options)
        .or_else(|| around_tables(rendered, snapshots, options))
}

fn around_tables(
    rendered: &Rendered,
    [before, now]: [&EncodedSnapshot; 2],
    options: &RenderOptions,
) -> Option<Rendered> {
    let tables = |context: &RenderContext<'_>, _: &mut RenderProblems| {
        let [gone, come] = differ(&rendered.clusters, context.clusters).ok_or(())?;
        // Unchanged virtual hosts that refer to these clusters would now be rendered differently.
        if gone.iter().any(|name| now.is_in_route_tables(name))
            || come.iter().any(|name| before.is_in_route_tables(name))
        {
            return Err(());
        }
        let (old, new) = (before.route_tables(), now.route_tables());
        route_table_patch::render(&rendered.route_tables, old, new, context)
            .map(|tables| tables.to_vec())
            .ok_or(())
    };
    let snapshot = now.without_route_tables();
    let after = whole::render_around(tables, &snapshot, now.keys(), options);
    let mut after = after.ok()?;
    after.share_with(rendered);
    after.problems.is_empty().then_some(after)
}

/// Returns removed and added names, or `None` if there are too many to search for. Both lists must
/// be sorted by name.
fn differ<'r>(before: &'r [Resource], now: &'r [Resource]) -> Option<[Vec<&'r str>; 2]> {
    let in_one_alone = |one: &'r [Resource], other: &[Resource]| {
        let mut left = other.iter().peekable();
        let mut names = Vec::new();
        for resource in one {
            while left.next_if(|it| it.name < resource.name).is_some() {}
            if left.next_if(|it| it.name == resource.name).is_none() {
                names.push(resource.name.as_str());
            }
        }
        names
    };
    let differ = [in_one_alone(before, now), in_one_alone(now, before)];
    let count: usize = differ.iter().map(Vec::len).sum();
    (count <= MAX_SEARCHES).then_some(differ)
}

/// Renders a Gateway if only these endpoint sets changed. `backends` are all backends that use one
/// of the sets, in snapshot order. Returns `None` if anything else might be affected.
pub fn endpoints_after(
    rendered: &Rendered,
    changed: &[EndpointSet],
    backends: &[Backend],
    options: &RenderOptions,
) -> Option<Rendered> {
    // The number of hosts affects rate limits.
    if !rendered.problems.is_empty()
        || changed
            .iter()
            .any(|set| EndpointSet::counts_hosts(&set.name))
    {
        return None;
    }
    let mut problems = RenderProblems::default();
    endpoints::check(changed, &options.endpoints, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    let sets = endpoints::sets(changed);
    let mut clusters = Vec::new();
    let mut subscriptions = Subscriptions::default();
    for backend in backends {
        let known = find(&rendered.clusters, &backend.name)?;
        let inline = clusters::with_endpoints(known, backend, &sets, &options.endpoints)?;
        if inline.is_empty() {
            subscriptions.endpoints.insert(&backend.name);
        }
        clusters.extend(inline);
    }
    let context = RenderContext {
        options,
        subscriptions,
        clusters: &rendered.clusters,
        gateway: "",
        edge: Edge::default(),
        stream_idle_ms: 0,
        tracing: None,
        log_output: None,
        measured_routes: &[],
        rate_limits: &[],
        fleet_hosts: rendered.fleet_hosts,
        filters: request_filters::of_snapshot(None, &[]),
        secrets: &[],
        route_tables: &[],
    };
    let backends: Vec<&Backend> = backends.iter().collect();
    let endpoints = endpoints::render(&backends, &sets, &context);
    Some(Rendered {
        endpoints: replaced(&rendered.endpoints, endpoints)?,
        clusters: replaced(&rendered.clusters, clusters)?,
        ..rendered.clone()
    })
}

/// Returns `None` if one of `others` is not in the list.
fn replaced(list: &Arc<[Resource]>, others: Vec<Resource>) -> Option<Arc<[Resource]>> {
    let mut list = Arc::clone(list);
    for other in others {
        let place = list.binary_search_by(|known| known.name.cmp(&other.name));
        let place = place.ok()?;
        if *list.get(place)? != other {
            *Arc::make_mut(&mut list).get_mut(place)? = other;
        }
    }
    Some(list)
}
