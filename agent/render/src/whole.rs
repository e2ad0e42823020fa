//! Renders a complete snapshot: secrets, clusters, route tables, then listeners.
//!
//! The same snapshot must always produce the same bytes.

use std::convert::Infallible;
use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{Backend, Snapshot};

use crate::budget::Granted;
use crate::clusters::{self, endpoints, shares};
use crate::context::{RenderContext, RenderOptions};
use crate::http::route_tables::{self, MAX_TABLE_BYTES, TableRoom};
use crate::http::{passwords, rate_limits, request_filters, shared_filters};
use crate::listeners;
use crate::rendered::{RenderProblems, Rendered, Resource, by_name};
use crate::tls::secrets;

/// Renders a snapshot with its private keys.
pub fn render(snapshot: &Snapshot, keys: &[KeyPair], options: &RenderOptions) -> Rendered {
    let tables = |context: &RenderContext<'_>, problems: &mut RenderProblems| {
        let tables = snapshot.route_tables.iter();
        let mut room = TableRoom::new(MAX_TABLE_BYTES);
        let tables = tables
            .map(|table| route_tables::render(table, context, &mut room, problems))
            .collect();
        Ok::<_, Infallible>(by_name(tables, problems))
    };
    let Ok(rendered) = render_around(tables, snapshot, keys, options);
    rendered
}

/// Renders an encoded snapshot, with the same result as [`render`]. Decodes one virtual host at a
/// time, because a decoded host takes seven times the memory.
pub fn render_encoded(encoded: &EncodedSnapshot, options: &RenderOptions) -> Rendered {
    let tables = |context: &RenderContext<'_>, problems: &mut RenderProblems| {
        let tables = encoded.route_tables().iter();
        let mut room = TableRoom::new(MAX_TABLE_BYTES);
        let tables = tables
            .map(|table| route_tables::render_encoded(table, context, &mut room, problems))
            .collect();
        Ok::<_, Infallible>(by_name(tables, problems))
    };
    let snapshot = encoded.without_route_tables();
    let Ok(rendered) = render_around(tables, &snapshot, encoded.keys(), options);
    rendered
}

/// `tables` must return the route tables sorted by name.
pub(crate) fn render_around<E>(
    tables: impl FnOnce(&RenderContext<'_>, &mut RenderProblems) -> Result<Vec<Resource>, E>,
    snapshot: &Snapshot,
    keys: &[KeyPair],
    options: &RenderOptions,
) -> Result<Rendered, E> {
    // `options` takes the place of `addresses`, which are only requested, and of `rotation`.
    // `context` contains `edge`, `tracing`, `log_output` and `measured_routes`.
    let Snapshot {
        gateway: _,
        addresses: _,
        ports,
        route_tables: _,
        backends,
        endpoints,
        keys: _,
        trust_bundles: _,
        edge: _,
        rotation: _,
        tracing: _,
        log_output: _,
        measured_routes: _,
        rate_limits,
        shared_filters,
        filters,
        // For the agent.
        rollout: _,
    } = snapshot;
    let mut problems = RenderProblems::default();
    let filters = request_filters::of_snapshot(filters.as_deref(), shared_filters);
    let secrets = secrets::render(snapshot, keys, options, &mut problems);
    let mut context = RenderContext::new(snapshot, &secrets, filters, options);
    endpoints::check(endpoints, &options.endpoints, &mut problems);
    let backends: Vec<&Backend> = backends.iter().collect();
    let sets = endpoints::sets(endpoints);
    let mut clusters = clusters::render(&backends, &sets, &context, &mut problems);
    if passwords::are_checked(shared_filters) {
        // The first of several clusters with the same name is used.
        clusters.insert(0, passwords::cluster(options));
        clusters = by_name(clusters, &mut problems);
    }
    context.clusters = &clusters;
    let endpoints = endpoints::render(&backends, &sets, &context);
    let mut route_problems = RenderProblems::default();
    let tables = tables(&context, &mut route_problems)?;
    context.route_tables = &tables;
    let listeners = listeners::render(ports, &mut context, &mut problems);
    let mut filters = Vec::new();
    let mut all_listeners = ports.iter().flat_map(|port| &port.listeners);
    if all_listeners.any(|listener| !listener.route_table.is_empty()) {
        filters = shared_filters::render(shared_filters, keys, &mut problems);
        filters.extend(rate_limits::render(rate_limits, &context, &mut problems));
        filters.sort_by(|a, b| a.name.cmp(&b.name));
    }
    problems.append(route_problems);
    let granted = &context.subscriptions;
    let inline = granted.inline_of(&backends);
    Ok(Rendered {
        in_files: granted.in_files(),
        subscriptions: granted.count,
        shares: shares::render(options, ports, &listeners, &clusters, &backends),
        fleet_hosts: context.fleet_hosts,
        listeners: listeners.into(),
        route_tables: in_files(&tables, &granted.route_tables),
        endpoints: endpoints.into(),
        secrets: in_files(&secrets, &granted.secrets),
        clusters: clusters.into(),
        filters: filters.into(),
        problems: problems.distinct(),
        inline,
    })
}

fn in_files(resources: &[Resource], granted: &Granted<'_>) -> Arc<[Resource]> {
    let in_files = resources.iter().filter(|it| !granted.is_inline(&it.name));
    in_files.cloned().collect()
}
