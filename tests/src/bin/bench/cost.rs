//! The cost of policies: none, policies for the Gateway, and policies for each route, each compared
//! with a plain Envoy that has the same filters. AccessPolicies with a single part are compared with
//! none.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::access::{self, Part};
use super::client::{Backend, Client};
use super::host::Host;
use super::lone_change;
use super::manifests::{self, Policies, RouteKind, Shape, WrittenManifests};
use super::plain::Plain;
use super::storm::joined;
use super::times::{Times, pause_after, pick};

const SERVED: Duration = Duration::from_secs(120);
const LOAD: Duration = Duration::from_secs(10);
/// One connection each.
const CLIENTS: usize = 8;
const UNLOGGED: &[&str] = &["--access-log=off"];

/// Times are in milliseconds, memory in MiB.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Served {
    /// Time from the start of Envoy to the first response.
    load_ms: f64,
    memory_mib: f64,
    change: Times,
    per_second: f64,
    latency: Times,
}

#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    policies: &'static str,
    /// Time from the start of the agent to the first response.
    cold_start_ms: f64,
    agent_memory_mib: f64,
    sesame: Served,
    /// `None` for AccessPolicies with a single part.
    plain: Option<Served>,
    errors: usize,
}

/// A namespace's routes can use at most this number of different access filters of a Gateway.
const MAX_ACCESS: usize = 256;

pub(crate) fn measure(routes: usize, changes: usize) -> anyhow::Result<Vec<Cost>> {
    access::send_credentials();
    let mut all = Vec::new();
    for (name, policies) in [
        ("none", Policies::None),
        ("Gateway", Policies::Protect),
        ("each route", Policies::ProtectEach),
    ] {
        eprintln!("{routes} routes, policies: {name}");
        all.push(of(name, policies, routes, changes)?);
    }
    print(&all)?;
    let few = routes.min(MAX_ACCESS);
    eprintln!("{few} routes, AccessPolicy: none");
    let mut access = vec![of("none", Policies::None, few, changes)?];
    for part in Part::ALL {
        for (name, each) in part.names().into_iter().zip([false, true]) {
            eprintln!("{few} routes, AccessPolicy: {name}");
            let policies = Policies::Access(part, each);
            access.push(of(name, policies, few, changes)?);
        }
    }
    for columns in access.chunks(3) {
        writeln!(std::io::stdout())?;
        print(columns)?;
    }
    all.extend(access);
    Ok(all)
}

fn of(
    name: &'static str,
    policies: Policies,
    routes: usize,
    changes: usize,
) -> anyhow::Result<Cost> {
    let backend = Backend::start("a")?;
    let mut host = Host::new(Shape {
        routes,
        gateways: 1,
        endpoints: 1,
        listener_sets: 0,
        policies,
        kind: RouteKind::HttpRoute,
    })?;
    host.manifests().write_all(backend.port())?;
    host.start_with(UNLOGGED)?;
    let mut client = Client::new(host.address());
    for route in [0, routes - 1] {
        served(&mut client, &manifests::hostname(route))?;
    }
    host.wait_serving(SERVED)?;
    let envoy = host.envoy_program()?;
    let mut sesame = Served::default();
    (sesame.memory_mib, _) = host.envoy_memory()?;
    let (agent_memory_mib, _) = host.agent_memory()?;
    (sesame.per_second, sesame.latency) = load(host.address(), routes)?;
    let (mut samples, mut errors) = (Vec::new(), 0);
    for change in 0..changes {
        let route = pick(change, routes);
        let revision = format!("r{change}");
        let write = |files: &WrittenManifests| files.write_app(route, backend.port(), &revision);
        let is_changed = |answer: &super::client::Answer| answer.revision == revision;
        let made = lone_change::make(&mut host, &mut client, route, SERVED, write, is_changed)?;
        samples.push(made.0);
        errors += made.1;
    }
    sesame.change = Times::of(samples);
    let hostname = manifests::hostname(0);
    sesame.load_ms = host.cold_start_envoy_alone(&hostname)?;
    host.kill_all()?;
    host.forget_runtime()?;
    let started = Instant::now();
    host.start_with(UNLOGGED)?;
    served(&mut Client::new(host.address()), &hostname)?;
    let cold_start_ms = milliseconds(started.elapsed());
    host.kill_all()?;

    let (mut plain, mut plain_errors) = (None, 0);
    if !matches!(policies, Policies::Access(..)) {
        eprintln!("  plain Envoy");
        let envoy = Plain::new(&envoy, policies, routes, backend.port())?;
        let measured = of_plain(envoy, routes, changes)?;
        (plain, plain_errors) = (Some(measured.0), measured.1);
    }
    Ok(Cost {
        policies: name,
        cold_start_ms,
        agent_memory_mib,
        sesame,
        plain,
        errors: errors + plain_errors,
    })
}

fn of_plain(mut envoy: Plain, routes: usize, changes: usize) -> anyhow::Result<(Served, usize)> {
    let mut plain = Served::default();
    let mut client = Client::new(envoy.address());
    let started = Instant::now();
    envoy.start()?;
    served(&mut client, &manifests::hostname(0))?;
    plain.load_ms = milliseconds(started.elapsed());
    served(&mut client, &manifests::hostname(routes - 1))?;
    plain.memory_mib = envoy.memory_mib();
    (plain.per_second, plain.latency) = load(envoy.address(), routes)?;
    let (mut samples, mut errors) = (Vec::new(), 0);
    for change in 0..changes {
        let route = pick(change, routes);
        let revision = format!("r{change}");
        envoy.stage(route, &revision)?;
        let started = Instant::now();
        envoy.publish()?;
        errors += client.wait_for(&manifests::hostname(route), SERVED, |answer| {
            answer.revision == revision
        })?;
        samples.push(started.elapsed());
        pause_after(started);
    }
    plain.change = Times::of(samples);
    Ok((plain, errors))
}

fn served(client: &mut Client, hostname: &str) -> anyhow::Result<usize> {
    client.wait_for(hostname, SERVED, |answer| answer.status == 200)
}

/// Returns requests per second, and their latencies.
fn load(address: SocketAddr, routes: usize) -> anyhow::Result<(f64, Times)> {
    let samples = std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || ask(address, routes, number)));
        let clients: Vec<_> = clients.collect();
        let samples = clients.into_iter().map(|client| joined(client.join()));
        samples.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let samples = samples.concat();
    #[expect(clippy::cast_precision_loss, reason = "far fewer requests")]
    let per_second = samples.len() as f64 / LOAD.as_secs_f64();
    Ok((per_second, Times::of(samples)))
}

fn ask(address: SocketAddr, routes: usize, client: usize) -> anyhow::Result<Vec<Duration>> {
    let mut samples = Vec::new();
    let mut connection = Client::new(address);
    let start = Instant::now();
    while start.elapsed() < LOAD {
        let hostname = manifests::hostname(pick(samples.len() + client, routes));
        let sent = Instant::now();
        anyhow::ensure!(connection.is_answered(&hostname), "{hostname}: no response");
        samples.push(sent.elapsed());
    }
    Ok(samples)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn print(all: &[Cost]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, cell: &dyn Fn(&Cost) -> String| -> std::io::Result<()> {
        write!(out, "{name:<46}")?;
        for cost in all {
            write!(out, "{:>40}", cell(cost))?;
        }
        writeln!(out)
    };
    let both = |it: &Cost, value: fn(&Served) -> f64| match &it.plain {
        Some(plain) => format!("{:.0} / {:.0}", value(&it.sesame), value(plain)),
        None => format!("{:.0}", value(&it.sesame)),
    };
    let plain = |it: &Cost, times: fn(&Served) -> &Times| {
        it.plain
            .as_ref()
            .map_or_else(String::new, |it| times(it).cell())
    };
    row("policies", &|it| it.policies.to_owned())?;
    row("cold start of agent and Envoy, ms", &|it| {
        format!("{:.0}", it.cold_start_ms)
    })?;
    row("load time of Envoy alone / plain Envoy, ms", &|it| {
        both(it, |it| it.load_ms)
    })?;
    row("memory of Envoy / plain Envoy, MiB", &|it| {
        both(it, |it| it.memory_mib)
    })?;
    row("memory of the agent, MiB", &|it| {
        format!("{:.0}", it.agent_memory_mib)
    })?;
    row("route change, ms (min / median / p99 / max)", &|it| {
        it.sesame.change.cell()
    })?;
    if all.iter().any(|it| it.plain.is_some()) {
        row("  plain Envoy", &|it| plain(it, |it| &it.change))?;
    }
    row("requests per second / plain Envoy", &|it| {
        both(it, |it| it.per_second)
    })?;
    row("latency, ms (min / median / p99 / max)", &|it| {
        it.sesame.latency.cell()
    })?;
    if all.iter().any(|it| it.plain.is_some()) {
        row("  plain Envoy", &|it| plain(it, |it| &it.latency))?;
    }
    row("5xx responses during the run", &|it| it.errors.to_string())?;
    Ok(())
}
