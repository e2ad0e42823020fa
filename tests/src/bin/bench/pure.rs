//! Measures `resolve` and `render` alone: without a host, in this process and on one core.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use sesame_kinds::world::{Kind, World};
use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::layout::XdsLayout;
use sesame_resolver::incremental;
use sesame_resolver::{Options, Resolver};
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;

use super::manifests::{RouteKind, WrittenManifests};
use super::times::{Times, pick};

const RUNS: usize = 15;

/// Medians in milliseconds.
pub(crate) struct Pure {
    pub(crate) resolve: f64,
    /// After one route changes; incremental for kinds that support this.
    pub(crate) route: f64,
    pub(crate) endpoints: f64,
    pub(crate) render: f64,
}

/// Restores the manifests afterwards.
pub(crate) fn measure(
    written: &WrittenManifests,
    routes: usize,
    port: u16,
) -> anyhow::Result<Pure> {
    let mut manifests = Manifests::new(written.dir(), LastGood::none());
    manifests.scan();
    let options = Options {
        allow_local_endpoints: true,
        ..Options::default()
    };
    let render_options = sesame_render::RenderOptions {
        addresses: vec![[127, 0, 0, 1].into()],
        port_map: [(80, 8080)].into(),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: sesame_render::limits::Limits::default(),
        layout: XdsLayout::new("/run/bench"),
        admin_socket: "/run/bench/admin.sock".into(),
        trusted_hops: 0,
        fleet_hosts: 1,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: sesame_render::EndpointRules {
            local: true,
            ..sesame_render::EndpointRules::default()
        },
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: [].into(),
    };
    let mut resolver = Resolver::default();
    let (mut resolve, mut rendered) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let started = Instant::now();
        let resolution = resolver.resolve(manifests.world(), &options);
        resolve.push(started.elapsed());
        let gateway = resolution.gateways.first();
        let gateway = gateway.context("the Gateway was not resolved")?;
        // The agent encodes the snapshot after each resolution.
        let started = Instant::now();
        let encoded = EncodedSnapshot::new(&gateway.snapshot, gateway.keys.clone());
        let result = sesame_render::render_encoded(&encoded, &render_options);
        rendered.push(started.elapsed());
        ensure!(result.problems.is_empty(), "{:?}", result.problems);
    }
    let route_kind = match written.kind() {
        RouteKind::HttpRoute => Kind::HttpRoute,
        RouteKind::HttpProxy => Kind::HttpProxy,
        RouteKind::Ingress => Kind::Ingress,
    };
    let mut changed = |before: &World, world: &World, keys: &[_]| {
        let started = Instant::now();
        let delta = incremental::resolve(before, world, keys, &mut resolver, &options);
        let is_whole = keys
            .iter()
            .any(|key| matches!(key.kind, Kind::HttpProxy | Kind::Ingress));
        if delta.is_none() && is_whole {
            resolver.resolve(world, &options);
        } else {
            delta.context("the change is not resolved incrementally")?;
        }
        anyhow::Ok(started.elapsed())
    };
    let (mut route_times, mut endpoint_times) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let app = pick(run, routes);
        for (kind, port, revision, times) in [
            (route_kind, port, "changed", &mut route_times),
            (
                Kind::EndpointSlice,
                port ^ 1,
                "changed",
                &mut endpoint_times,
            ),
        ] {
            let before = manifests.world().clone();
            written.write_app(app, port, revision)?;
            let scan = manifests.scan();
            ensure!(scan.changed.iter().all(|key| key.kind == kind));
            times.push(changed(&before, manifests.world(), &scan.changed)?);
        }
        written.write_app(app, port, "first")?;
        manifests.scan();
    }
    Ok(Pure {
        resolve: Times::of(resolve).median,
        route: Times::of(route_times).median,
        endpoints: Times::of(endpoint_times).median,
        render: Times::of(rendered).median,
    })
}
