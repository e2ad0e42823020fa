//! Renders a change that adds or removes a few backends, and reuses all other clusters.
//!
//! Never guess: return `None` if anything might differ except these clusters, their endpoints and
//! some virtual hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::encoded::{BackendChanges, EncodedSnapshot};
use sesame_proto::schema::{Backend, EndpointSet};

use super::{MAX_SEARCHES, route_table_patch};
use crate::budget::Subscriptions;
use crate::clusters::endpoints::Sets;
use crate::clusters::{self, endpoints, shares};
use crate::context::{RenderContext, RenderOptions};
use crate::http::request_filters;
use crate::rendered::{RenderProblems, Rendered, Resource, find};

/// `rendered` must be the rendering of `before` and contain no problems.
pub(crate) fn render(
    rendered: &Rendered,
    [before, now]: [&EncodedSnapshot; 2],
    options: &RenderOptions,
) -> Option<Rendered> {
    let changes = now.backend_changes(before, MAX_SEARCHES)?;
    if !affects_only_these_backends(&changes, before, now) {
        return None;
    }
    let snapshot = now.without_route_tables_and_endpoints();
    let filters =
        request_filters::of_snapshot(snapshot.filters.as_deref(), &snapshot.shared_filters);
    let mut context = RenderContext::new(&snapshot, &rendered.secrets, filters, options);
    if !others_stay(rendered, &context.subscriptions, &changes) {
        return None;
    }
    let BackendChanges { come, gone, sets } = &changes;
    // The number of hosts affects rate limits.
    if sets.iter().any(|name| EndpointSet::counts_hosts(name)) {
        return None;
    }
    let backend_sets = come.iter().chain(gone).map(|it| it.endpoints.as_str());
    let touched: BTreeSet<&str> = sets
        .iter()
        .map(String::as_str)
        .chain(backend_sets)
        .collect();
    let found = now.endpoints_of(&touched);
    let mut problems = RenderProblems::default();
    endpoints::check(&found, &options.endpoints, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    let sets = endpoints::sets(&found);
    let backends: Vec<&Backend> = snapshot.backends.iter().collect();
    let mut touched_backends = backends.clone();
    touched_backends.retain(|backend| touched.contains(backend.endpoints.as_str()));
    let clusters = clusters(rendered, &changes, &touched_backends, &sets, &context)?;
    context.clusters = &clusters;
    let (old, new) = (before.route_tables(), now.route_tables());
    let route_tables = route_table_patch::render(&rendered.route_tables, old, new, &context)?;
    let files = endpoints::render(&touched_backends, &sets, &context);
    let files = files.into_iter().map(|it| (it.name.clone(), it)).collect();
    let granted = &context.subscriptions;
    Some(Rendered {
        shares: shares::render(
            options,
            &snapshot.ports,
            &rendered.listeners,
            &clusters,
            &backends,
        ),
        route_tables,
        endpoints: merged(&rendered.endpoints, &touched, files),
        in_files: granted.in_files(),
        subscriptions: granted.count,
        inline: granted.inline_of(&backends),
        clusters,
        ..rendered.clone()
    })
}

/// Returns true if the backends do not use TLS, and no unchanged virtual host, listener or log
/// receiver refers to them.
fn affects_only_these_backends(
    changes: &BackendChanges,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
) -> bool {
    let BackendChanges { come, gone, .. } = changes;
    let is_named = |backend: &Backend, snapshot: &EncodedSnapshot| {
        snapshot.is_in_route_tables(&backend.name) || snapshot.is_in_rest(&backend.name)
    };
    come.iter().chain(gone).all(|backend| backend.tls.is_none())
        // The new snapshot must not refer to removed backends, and the old one must not refer to
        // added backends.
        && !gone.iter().any(|backend| is_named(backend, now))
        && !come.iter().any(|backend| is_named(backend, before))
}

fn others_stay(rendered: &Rendered, granted: &Subscriptions<'_>, changes: &BackendChanges) -> bool {
    let BackendChanges { come, gone, .. } = changes;
    let is_of = |backends: &[Backend], name: &str| backends.iter().any(|it| it.name == name);
    let before = rendered.in_files.iter().map(String::as_str);
    let before = before.filter(|name| !is_of(gone, name));
    let now = granted.endpoints.iter().copied();
    before.eq(now.filter(|name| !is_of(come, name)))
}

fn clusters(
    rendered: &Rendered,
    changes: &BackendChanges,
    touched: &[&Backend],
    sets: &Sets<'_>,
    context: &RenderContext<'_>,
) -> Option<Arc<[Resource]>> {
    let BackendChanges { come, gone, .. } = changes;
    let gone: Vec<String> = gone.iter().flat_map(clusters::names_of).collect();
    let gone = gone.iter().map(String::as_str).collect();
    let mut rendered_now = BTreeMap::new();
    for backend in come {
        for cluster in clusters::for_backend(backend, sets, context).ok()? {
            // Only a full rendering reports duplicate names.
            let name = cluster.name.clone();
            if find(&rendered.clusters, &name).is_some() {
                return None;
            }
            rendered_now.insert(name, cluster);
        }
    }
    let has_come = |backend: &Backend| come.iter().any(|it| it.name == backend.name);
    for backend in touched.iter().filter(|backend| !has_come(backend)) {
        let known = find(&rendered.clusters, &backend.name)?;
        let rules = &context.options.endpoints;
        let inline = clusters::with_endpoints(known, backend, sets, rules)?;
        rendered_now.extend(inline.into_iter().map(|it| (it.name.clone(), it)));
    }
    Some(merged(&rendered.clusters, &gone, rendered_now))
}

fn merged(
    list: &Arc<[Resource]>,
    without: &BTreeSet<&str>,
    with: BTreeMap<String, Resource>,
) -> Arc<[Resource]> {
    if with.is_empty() && !list.iter().any(|it| without.contains(it.name.as_str())) {
        return Arc::clone(list);
    }
    let mut all = Vec::with_capacity(list.len() + with.len());
    let mut with = with.into_values().peekable();
    for kept in list.iter() {
        while let Some(next) = with.next_if(|it| it.name < kept.name) {
            all.push(next);
        }
        if let Some(next) = with.next_if(|it| it.name == kept.name) {
            all.push(next);
        } else if !without.contains(kept.name.as_str()) {
            all.push(kept.clone());
        }
    }
    all.extend(with);
    all.into()
}
