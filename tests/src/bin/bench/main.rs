//! `make bench`: measures how long Sesame takes to serve a change, with different numbers of
//! routes. The *floor* is the time that Envoy needs to apply the same files without the agent.

mod access;
mod churn;
mod client;
mod cluster_list;
mod cost;
mod host;
mod layers;
mod life;
mod lone_change;
mod manifests;
mod plain;
mod pure;
mod replay;
mod requests;
mod storm;
mod switches;
mod table;
mod times;
mod traffic;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde::Serialize;

use churn::Churn;
use client::{Answer, Backend, Client};
use host::Host;
use life::Life;
use manifests::{Policies, RouteKind, Shape, WrittenManifests};
use requests::RequestCost;
use switches::{ClusterLists, Switches};
use times::{Times, pick};

/// Measures Sesame on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// Number of routes; repeatable.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000, 5000, 10_000])]
    routes: Vec<usize>,
    /// Kind of the route objects. When an HTTPProxy or Ingress changes, the agent resolves all
    /// objects again.
    #[arg(long, value_enum, default_value_t = RouteKind::HttpRoute)]
    kind: RouteKind,
    /// Number of Gateways that share the routes; changes apply to the first.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    gateways: u16,
    /// Number of endpoints per Service.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..255))]
    endpoints: u8,
    /// Number of ListenerSets, each with a listener for one of the first routes.
    #[arg(long, default_value_t = 0)]
    listener_sets: usize,
    /// TrafficPolicies to add. Use `each` with at most 1,000 routes.
    #[arg(long, value_enum, default_value_t = Policies::None)]
    policies: Policies,
    /// Number of changes per kind.
    #[arg(long, default_value_t = 60)]
    changes: usize,
    /// Duration of the churn at each size, in seconds; 0 skips the churn.
    #[arg(long, default_value_t = 60)]
    churn_seconds: u64,
    /// Skip measuring traffic and the cost per request, which takes as long as all other measurements.
    #[arg(long)]
    no_requests: bool,
    /// Measure only resolution and rendering, without a host.
    #[arg(long)]
    pure: bool,
    /// Measure only the cost of policies with this number of routes, compared with a plain Envoy that
    /// has the same filters, written by hand.
    #[arg(long, value_name = "ROUTES")]
    cost: Option<usize>,
    /// Measure only load time, change time and memory with this number of HTTPRoutes, then
    /// HTTPProxies, then Ingresses.
    #[arg(long, value_name = "OBJECTS")]
    layers: Option<usize>,
    /// Measure only `sesame-agent diff --requests` with this number of log lines, and the first
    /// number of routes.
    #[arg(long, value_name = "LINES")]
    replay: Option<u64>,
    /// Measure only the traffic of each protocol, next to an Envoy that is configured by hand, in this
    /// number of rounds.
    #[arg(long, value_name = "ROUNDS")]
    traffic: Option<usize>,
    /// With --traffic: also measure what each part of Sesame's configuration costs.
    #[arg(long, requires = "traffic")]
    parts: bool,
    /// JSON file for the figures.
    #[arg(long, default_value = "target/bench.json")]
    json: std::path::PathBuf,
}

/// Takes a minute on two cores.
const TRAFFIC_ROUNDS: usize = 60;
const SERVED: Duration = Duration::from_secs(30);

/// Times are in milliseconds, memory in MiB.
#[derive(Debug, Default, Serialize)]
struct Figures {
    routes: usize,
    route_change: Times,
    route_floor: Times,
    ratio: f64,
    switches: Switches,
    endpoint_files: usize,
    endpoint_change_by_file: Option<Times>,
    endpoint_change_inline: Option<Times>,
    life: Life,
    cold_start_ms: f64,
    envoy_alone_cold_start_ms: f64,
    resolve_ms: f64,
    resolve_route_ms: f64,
    resolve_endpoints_ms: f64,
    render_ms: f64,
    agent_rss_mib: f64,
    agent_peak_mib: f64,
    envoy_rss_mib: f64,
    agent_series: usize,
    envoy_series: usize,
    agent_idle_cpu_percent: f64,
    request_cpu_us: RequestCost,
    churn: Option<Churn>,
    errors: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(dir) = args.json.parent() {
        std::fs::create_dir_all(dir)?;
    }
    ensure!(
        args.pure || args.kind != RouteKind::Ingress,
        "--kind Ingress requires --pure"
    );
    ensure!(
        args.kind == RouteKind::HttpRoute || args.gateways == 1 && args.listener_sets == 0,
        "--kind {:?} supports only one Gateway and no ListenerSets",
        args.kind
    );
    if let Some(routes) = args.cost {
        let all = cost::measure(routes, args.changes)?;
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        eprintln!("figures as JSON: {}", args.json.display());
        return Ok(());
    }
    if let Some(objects) = args.layers {
        let all = layers::measure(objects, args.changes)?;
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        eprintln!("figures as JSON: {}", args.json.display());
        return Ok(());
    }
    if let Some(lines) = args.replay {
        let routes = args.routes.first().copied().unwrap_or(1000);
        let cost = replay::measure(lines, routes)?;
        std::fs::write(&args.json, serde_json::to_vec_pretty(&cost)?)?;
        eprintln!("figures as JSON: {}", args.json.display());
        return Ok(());
    }
    if let Some(rounds) = args.traffic {
        let all = traffic::measure(rounds, args.parts)?;
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        eprintln!("figures as JSON: {}", args.json.display());
        return Ok(());
    }
    let mut all = Vec::new();
    for routes in &args.routes {
        eprintln!("{routes} routes");
        all.push(measure(*routes, &args).with_context(|| format!("{routes} routes"))?);
        // Write the results after each size, in case a later size fails.
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        table::print(&all)?;
    }
    if !args.pure && !args.no_requests {
        eprintln!("traffic");
        traffic::measure(TRAFFIC_ROUNDS, false)?;
    }
    eprintln!("figures as JSON: {}", args.json.display());
    Ok(())
}

fn measure(routes: usize, args: &Args) -> anyhow::Result<Figures> {
    let changes = args.changes;
    let backends = [Backend::start("a")?, Backend::start("b")?];
    let ports = [backends[0].port(), backends[1].port()];
    let shape = Shape {
        routes,
        gateways: args.gateways.into(),
        endpoints: args.endpoints,
        listener_sets: args.listener_sets,
        policies: args.policies,
        kind: args.kind,
    };
    let mut host = Host::new(shape)?;
    host.manifests().write_all(ports[0])?;
    let mut figures = Figures {
        routes,
        ..Figures::default()
    };
    let pure = pure::measure(host.manifests(), routes, ports[0])?;
    let routes = shape.measured();
    figures.resolve_ms = pure.resolve;
    figures.resolve_route_ms = pure.route;
    figures.resolve_endpoints_ms = pure.endpoints;
    figures.render_ms = pure.render;
    if args.pure {
        return Ok(figures);
    }

    eprintln!("  first start");
    host.start()?;
    host.wait_serving(Duration::from_secs(300))?;
    let mut client = Client::new(host.address());
    client.wait_for("h0.bench.example.com", Duration::from_secs(60), |answer| {
        answer.status == 200
    })?;
    client.wait_for(
        &manifests::hostname(routes - 1),
        Duration::from_secs(120),
        |answer| answer.status == 200,
    )?;

    eprintln!("  route changes");
    let mut samples = Vec::new();
    for change in 0..changes {
        let route = pick(change, routes);
        let revision = format!("r{change}");
        let write = |files: &WrittenManifests| files.write_app(route, ports[0], &revision);
        let is_changed = |answer: &Answer| answer.revision == revision;
        let (took, errors) =
            lone_change::make(&mut host, &mut client, route, SERVED, write, is_changed)?;
        samples.push(took);
        figures.errors += errors;
    }
    figures.route_change = Times::of(samples);

    eprintln!("  endpoint changes");
    let sets: Vec<String> = (0..routes).map(manifests::endpoint_set).collect();
    let has_file = host.with_endpoint_files(&sets)?;
    let (by_file, inline): (Vec<_>, Vec<_>) = (0..routes).partition(|route| has_file[*route]);
    figures.endpoint_files = by_file.len();
    for (list, figure) in [
        (by_file, &mut figures.endpoint_change_by_file),
        (inline, &mut figures.endpoint_change_inline),
    ] {
        if list.is_empty() {
            continue;
        }
        let mut samples = Vec::new();
        for change in 0..changes {
            let route = list[pick(change, list.len())];
            // Later writes change only endpoints.
            let write =
                |port| move |files: &WrittenManifests| files.write_app(route, port, "endpoints");
            let has_revision = |answer: &Answer| answer.revision == "endpoints";
            let first = write(ports[0]);
            let (_, errors) =
                lone_change::make(&mut host, &mut client, route, SERVED, first, has_revision)?;
            figures.errors += errors;
            for (backend, port) in [("b", ports[1]), ("a", ports[0])] {
                let is_moved = |answer: &Answer| answer.body == backend;
                let write = write(port);
                let (took, errors) =
                    lone_change::make(&mut host, &mut client, route, SERVED, write, is_moved)?;
                samples.push(took);
                figures.errors += errors;
            }
        }
        *figure = Some(Times::of(samples));
    }

    eprintln!("  backend switches");
    let (switch, errors) = switches::measure(&mut host, routes, changes.div_ceil(2), ports)?;
    figures.errors += errors;

    figures.agent_idle_cpu_percent = host.agent_cpu_percent(Duration::from_secs(3))?;
    (figures.agent_rss_mib, figures.agent_peak_mib) = host.agent_memory()?;
    (figures.envoy_rss_mib, _) = host.envoy_memory()?;
    figures.agent_series = host.agent_series()?;
    figures.envoy_series = host.envoy_series()?;

    if args.churn_seconds > 0 {
        eprintln!("  churn");
        let lasting = Duration::from_secs(args.churn_seconds);
        let churned = churn::measure(&mut host, routes, ports, lasting)?;
        figures.errors += churned.errors;
        figures.churn = Some(churned);
    }

    eprintln!("  restarts");
    let hostname = manifests::hostname(0);
    figures.life = life::measure(&mut host, &hostname)?;
    figures.errors += figures.life.failed;

    eprintln!("  floor");
    let lists = ClusterLists::capture(&mut host, ports[0])?;
    let table = host.route_table_file()?;
    let mut variants = Vec::new();
    for revision in ["floor-a", "floor-b"] {
        host.manifests().write_switched(0, ports[0], revision)?;
        client.wait_for(&hostname, Duration::from_secs(30), |answer| {
            answer.revision == revision
        })?;
        host.wait_serving(Duration::from_secs(30))?;
        variants.push((revision, std::fs::read(&table)?));
    }
    ensure!(
        variants[0].1 != variants[1].1,
        "the route table did not change"
    );
    host.kill_agent()?;
    let mut samples = Vec::new();
    for change in 0..changes {
        let (revision, bytes) = &variants[change % 2];
        let staged = host.stage(bytes)?;
        let started = Instant::now();
        std::fs::rename(&staged, &table)?;
        figures.errors += client.wait_for(&hostname, Duration::from_secs(30), |answer| {
            answer.revision == *revision
        })?;
        samples.push(started.elapsed());
        times::pause_after(started);
    }
    figures.route_floor = Times::of(samples);
    figures.ratio = figures.route_change.median / figures.route_floor.median.max(0.001);
    let clusters_floor = lists.floor(&host, changes)?;
    let floors = clusters_floor.median + figures.route_floor.median;
    figures.switches = Switches {
        ratio: switch.median / floors.max(0.001),
        switch,
        clusters_floor,
    };

    eprintln!("  cold start");
    figures.envoy_alone_cold_start_ms = host.cold_start_envoy_alone(&hostname)?;
    host.kill_all()?;
    host.forget_runtime()?;
    let started = Instant::now();
    host.start()?;
    let mut client = Client::new(host.address());
    client.wait_for(&hostname, Duration::from_secs(120), |answer| {
        answer.status == 200
    })?;
    figures.cold_start_ms = started.elapsed().as_secs_f64() * 1000.0;
    // `wait_serving` remembers the serving Envoy, which later steps kill.
    host.wait_serving(Duration::from_secs(60))?;
    if !args.no_requests {
        eprintln!("  requests");
        figures.request_cpu_us = requests::measure(&mut host, &hostname)?;
    }
    Ok(figures)
}
