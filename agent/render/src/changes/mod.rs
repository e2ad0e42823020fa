//! Rendering of a change: what it leaves alone is taken over from the rendering before, and shared with it.
//!
//! It must never give another outcome than a whole rendering would; where that is not certain, it gives none.

mod route_table_patch;

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::{Backend, Edge, EndpointSet};

use crate::budget::Subscriptions;
use crate::clusters::{self, endpoints};
use crate::context::{RenderContext, RenderOptions};
use crate::rendered::{RenderProblems, Rendered, Resource, find};

/// Takes over everything but route tables, and of those the virtual hosts that are the same, of a Gateway that differs
/// from the rendered one in nothing else. None where more might differ for it; otherwise the outcome is that of
/// [`render`](crate::render).
pub fn routes_after(
    rendered: &Rendered,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
    options: &RenderOptions,
) -> Option<Rendered> {
    // With problems something was left out, and a route may look different for it.
    if !rendered.problems.is_empty() {
        return None;
    }
    let context = RenderContext {
        options,
        // Routes do not name it.
        gateway: "",
        edge: now.edge(),
        // Listeners have it, and they are the same.
        tracing: None,
        log_output: None,
        measured_routes: now.measured_routes(),
        subscriptions: Subscriptions::default(),
        secrets: &[],
        clusters: &rendered.clusters,
        route_tables: &[],
        // Where there are any, the whole is rendered.
        listener_filters: BTreeMap::new(),
    };
    let (before, now) = (before.route_tables()?, now.route_tables()?);
    Some(Rendered {
        route_tables: route_table_patch::render(&rendered.route_tables, &before, &now, &context)?,
        ..rendered.clone()
    })
}

/// Takes over everything but what says the endpoints of these sets, where the snapshot differs from the rendered one in nothing else.
/// `backends` are all that have one of the sets, in the snapshot's order. None where more might differ for it; otherwise the
/// outcome is that of [`render`](crate::render).
pub fn endpoints_after(
    rendered: &Rendered,
    changed: &[EndpointSet],
    backends: &[Backend],
    options: &RenderOptions,
) -> Option<Rendered> {
    // With problems something was left out, and something else may look different for it.
    if !rendered.problems.is_empty() {
        return None;
    }
    let mut problems = RenderProblems::default();
    endpoints::check(changed, &options.endpoints, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    let sets = endpoints::sets(changed);
    let mut clusters = Vec::new();
    // Whether a set is in a file follows from all backends, and those are the same.
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
        // Endpoints have nothing of these.
        gateway: "",
        edge: Edge::default(),
        tracing: None,
        log_output: None,
        measured_routes: &[],
        secrets: &[],
        route_tables: &[],
        listener_filters: BTreeMap::new(),
    };
    let backends: Vec<&Backend> = backends.iter().collect();
    let endpoints = endpoints::render(&backends, &sets, &context);
    Some(Rendered {
        endpoints: replaced(&rendered.endpoints, endpoints)?,
        clusters: replaced(&rendered.clusters, clusters)?,
        ..rendered.clone()
    })
}

/// Returns a list by name with these in the places of those of their names; none if one is not among them. A list that
/// does not change is shared.
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
