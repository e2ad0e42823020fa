//! Compares HTTPRoutes, HTTPProxies and Ingresses: the same hosts and Services as objects of each
//! kind.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use super::client::{Backend, Client};
use super::host::Host;
use super::manifests::{self, Policies, RouteKind, Shape};
use super::pure;
use super::switches;
use super::times::Times;

const LOADED: Duration = Duration::from_secs(300);

/// Times are in milliseconds, memory in MiB.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LayerFigures {
    kind: String,
    routes: usize,
    resolve_ms: f64,
    /// From the start of the agent until the last object is served.
    load_ms: f64,
    /// From a changed Service in an object until it is served.
    switch: Times,
    agent_rss_mib: f64,
    agent_peak_mib: f64,
    envoy_rss_mib: f64,
    errors: usize,
}

pub(crate) fn measure(routes: usize, changes: usize) -> anyhow::Result<Vec<LayerFigures>> {
    let kinds = [
        RouteKind::HttpRoute,
        RouteKind::HttpProxy,
        RouteKind::Ingress,
    ];
    let measured = kinds.map(|kind| {
        eprintln!("{routes} objects: {kind:?}");
        measure_kind(kind, routes, changes).with_context(|| format!("{kind:?}"))
    });
    let all = measured.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    print(&all)?;
    Ok(all)
}

fn measure_kind(kind: RouteKind, routes: usize, changes: usize) -> anyhow::Result<LayerFigures> {
    let backends = [Backend::start("a")?, Backend::start("b")?];
    let ports = [backends[0].port(), backends[1].port()];
    let mut host = Host::new(Shape {
        routes,
        gateways: 1,
        endpoints: 1,
        listener_sets: 0,
        policies: Policies::None,
        kind,
    })?;
    host.manifests().write_all(ports[0])?;
    let resolve_ms = pure::measure(host.manifests(), routes, ports[0])?.resolve;
    let started = Instant::now();
    host.start()?;
    let mut client = Client::new(host.address());
    let last = manifests::hostname(routes.saturating_sub(1));
    client.wait_for(&last, LOADED, |answer| answer.status == 200)?;
    let load_ms = started.elapsed().as_secs_f64() * 1000.0;
    host.wait_serving(LOADED)?;
    let (switch, errors) = switches::measure(&mut host, routes, changes.div_ceil(2), ports)?;
    let (agent_rss_mib, agent_peak_mib) = host.agent_memory()?;
    let (envoy_rss_mib, _) = host.envoy_memory()?;
    Ok(LayerFigures {
        kind: format!("{kind:?}"),
        routes,
        resolve_ms,
        load_ms,
        switch,
        agent_rss_mib,
        agent_peak_mib,
        envoy_rss_mib,
        errors,
    })
}

fn print(all: &[LayerFigures]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, cell: &dyn Fn(&LayerFigures) -> String| -> std::io::Result<()> {
        write!(out, "{name:<46}")?;
        for figures in all {
            write!(out, "{:>34}", cell(figures))?;
        }
        writeln!(out)
    };
    row("objects", &|f| format!("{} {}", f.routes, f.kind))?;
    row("load: start to last object served, ms", &|f| {
        format!("{:.0}", f.load_ms)
    })?;
    row("  resolution alone, ms", &|f| {
        format!("{:.0}", f.resolve_ms)
    })?;
    row("backend switch, ms (min / median / p99 / max)", &|f| {
        f.switch.cell()
    })?;
    row("agent / its peak, MiB", &|f| {
        format!("{:.0} / {:.0}", f.agent_rss_mib, f.agent_peak_mib)
    })?;
    row("Envoy, MiB", &|f| format!("{:.0}", f.envoy_rss_mib))?;
    row("5xx responses", &|f| f.errors.to_string())?;
    Ok(())
}
