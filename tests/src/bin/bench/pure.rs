//! `resolve` and `render` alone, in this process, on one core.

use std::path::Path;
use std::time::Instant;

use sesame_agent::source::last_good::LastGood;
use sesame_agent::source::manifests::Manifests;
use sesame_gateway_api::resolve::{Options, Resolver};
use sesame_render::layout::XdsLayout;

const RUNS: usize = 15;

/// Medians in milliseconds: of `resolve`, of `render`.
pub(crate) fn measure(manifests: &Path) -> anyhow::Result<(f64, f64)> {
    let mut manifests = Manifests::new(manifests, LastGood::none());
    manifests.scan();
    let options = Options {
        allow_local_endpoints: true,
        ..Options::default()
    };
    let render_options = sesame_render::Options {
        addresses: vec![[127, 0, 0, 1].into()],
        port_map: [(80, 8080)].into(),
        subscription_budget: 100,
        limits: sesame_render::limits::Limits::default(),
        layout: XdsLayout::new("/run/bench"),
        admin_socket: "/run/bench/admin.sock".into(),
        trusted_hops: 0,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: sesame_render::EndpointRules {
            local: true,
            ..sesame_render::EndpointRules::default()
        },
    };
    let mut resolver = Resolver::default();
    let (mut resolve, mut rendered) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let started = Instant::now();
        let resolution = resolver.resolve(manifests.world(), &options);
        resolve.push(started.elapsed());
        let gateway = resolution.gateways.first();
        let gateway = gateway.ok_or_else(|| anyhow::anyhow!("the Gateway does not resolve"))?;
        let started = Instant::now();
        let result = sesame_render::render(&gateway.snapshot, &gateway.keys, &render_options);
        rendered.push(started.elapsed());
        anyhow::ensure!(result.problems.is_empty(), "{:?}", result.problems);
    }
    Ok((
        super::Times::of(resolve).median,
        super::Times::of(rendered).median,
    ))
}
