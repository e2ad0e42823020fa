//! Throughput, latency and Envoy's CPU time per request, for each protocol: Sesame's Envoy next to
//! the same Envoy with a configuration written by hand, with the same settings and with few.

mod by_hand;
mod load;
mod parts;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use sesame_tests::certs::Authority;
use sesame_tests::processes::thread_seconds;

use self::by_hand::ByHand;
use self::load::{Clients, Protocol};
use super::client::Backend;
use super::host::Host;
use super::manifests::{self, Policies, RouteKind, Shape, WrittenManifests};
use super::times::Times;

/// Each round sends these requests to each Envoy, first on one connection, then on several.
const ALONE: usize = 100;
const TOGETHER: usize = 250;
const CONNECTIONS: usize = 8;
const SERVED: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize)]
struct Side {
    per_second: f64,
    latency: Times,
    cpu_us: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    protocol: &'static str,
    sesame: Side,
    /// Written by hand, with the same protections and limits.
    same_settings: Side,
    /// Written by hand, with as few settings as possible.
    by_hand: Side,
}

/// An Envoy under load.
struct Target {
    pid: u32,
    /// One request at a time. Envoy's cost of simultaneous requests depends on how many it reads at
    /// once, and so on other processes.
    alone: Clients,
    together: Clients,
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
}

/// What all targets of a run share.
struct Setup {
    host: Host,
    authority: Authority,
    backend: Backend,
}

impl Setup {
    fn start() -> anyhow::Result<Self> {
        let backend = Backend::start("a")?;
        let authority = Authority::new("bench");
        let mut host = Host::new(Shape {
            routes: 1,
            gateways: 1,
            endpoints: 1,
            listener_sets: 0,
            policies: Policies::None,
            kind: RouteKind::HttpRoute,
        })?;
        host.manifests().write_all(backend.port())?;
        manifests::write(host.manifests().dir(), "logs.yaml", &[configuration()])?;
        let secret = authority.issue(&[&manifests::hostname(0)]).secret("bench");
        manifests::write(host.manifests().dir(), "gateway0.yaml", &gateway(secret))?;
        // One worker, so that each Envoy handles all connections equally.
        host.start_with(&["--access-log=off", "--concurrency=1"])?;
        host.wait_serving(SERVED)?;
        Ok(Self {
            host,
            authority,
            backend,
        })
    }

    /// Waits until the Envoy serves.
    async fn target(
        &self,
        pid: u32,
        address: SocketAddr,
        protocol: Protocol,
    ) -> anyhow::Result<Target> {
        let trust = self.authority.trust();
        let deadline = Instant::now() + SERVED;
        loop {
            let host = manifests::hostname(0);
            match Clients::open(protocol, address, &host, &trust, 1).await {
                Ok(alone) => {
                    let together = Clients::open(protocol, address, &host, &trust, CONNECTIONS);
                    return Ok(Target {
                        pid,
                        alone,
                        together: together.await?,
                        cpu_us: Vec::new(),
                        per_second: Vec::new(),
                    });
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn by_hand(&self, copied: &Value) -> anyhow::Result<ByHand> {
        let leaf = self.authority.issue(&[&manifests::hostname(0)]);
        let envoy = self.host.envoy_program()?;
        ByHand::start(&envoy, &leaf, self.backend.port(), copied)
    }
}

fn configuration() -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "http3", "namespace": "bench"},
        "spec": {"edge": {"http3": {}}},
    })
}

/// Replaces the Gateway's HTTP listener by an HTTPS listener.
fn gateway(mut secret: Value) -> [Value; 2] {
    secret["metadata"]["namespace"] = json!("bench");
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": WrittenManifests::gateway(), "namespace": "bench"},
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": {"parametersRef": {
                "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "http3",
            }},
            "listeners": [{
                "name": "https", "port": 80, "protocol": "HTTPS",
                "tls": {"certificateRefs": [{"name": secret["metadata"]["name"]}]},
            }],
        },
    });
    [secret, gateway]
}

#[expect(clippy::cast_precision_loss, reason = "few requests")]
impl Target {
    async fn send_alone(&mut self) -> anyhow::Result<()> {
        let before = thread_seconds(self.pid);
        self.alone.send(ALONE).await?;
        let took = thread_seconds(self.pid) - before;
        self.cpu_us.push(took / ALONE as f64 * 1e6);
        Ok(())
    }

    async fn send_together(&mut self) -> anyhow::Result<()> {
        let took = self.together.send(TOGETHER).await?.as_secs_f64();
        let requests = CONNECTIONS * TOGETHER;
        self.per_second.push(requests as f64 / took);
        Ok(())
    }

    /// Returns the minimum, because other processes can only add cost.
    fn cpu_us(&self) -> f64 {
        self.cpu_us.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn side(self) -> Side {
        Side {
            per_second: median(&self.per_second),
            cpu_us: self.cpu_us(),
            latency: Times::of(self.together.into_latencies()),
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn measure(rounds: usize, with_parts: bool) -> anyhow::Result<Vec<Traffic>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let setup = Setup::start()?;
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        eprintln!("{}", protocol.name());
        let copied = parts::whole(&setup, protocol)?;
        all.push(runtime.block_on(compare(&setup, protocol, &copied, rounds))?);
        if with_parts {
            parts::measure(&setup, protocol, rounds, &runtime)?;
        }
    }
    print(&all)?;
    Ok(all)
}

/// `copied` are Sesame's settings.
async fn compare(
    setup: &Setup,
    protocol: Protocol,
    copied: &Value,
    rounds: usize,
) -> anyhow::Result<Traffic> {
    let same = setup.by_hand(copied)?;
    let plain = setup.by_hand(&Value::Null)?;
    let mut targets = Vec::new();
    for (pid, address) in [
        (setup.host.envoy_id()?, setup.host.address()),
        (same.pid(), same.address()),
        (plain.pid(), plain.address()),
    ] {
        targets.push(setup.target(pid, address, protocol).await?);
    }
    for _ in 0..rounds {
        for target in &mut targets {
            target.send_alone().await?;
        }
        for target in &mut targets {
            target.send_together().await?;
        }
    }
    let mut sides = targets.into_iter().map(Target::side);
    let mut side = || sides.next().unwrap_or_default();
    Ok(Traffic {
        protocol: protocol.name(),
        sesame: side(),
        same_settings: side(),
        by_hand: side(),
    })
}

fn print(all: &[Traffic]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, cell: &dyn Fn(&Traffic) -> String| -> std::io::Result<()> {
        write!(out, "{name:<46}")?;
        for traffic in all {
            write!(out, "{:>34}", cell(traffic))?;
        }
        writeln!(out)
    };
    row("protocol, over TLS", &|it| it.protocol.to_owned())?;
    let mut rows = |name: &str, cell: &dyn Fn(&Side) -> String| -> std::io::Result<()> {
        row(name, &|it| cell(&it.sesame))?;
        row("  by hand, with the same settings", &|it| {
            cell(&it.same_settings)
        })?;
        row("  by hand, with few settings", &|it| cell(&it.by_hand))
    };
    rows("requests per second", &|it| format!("{:.0}", it.per_second))?;
    rows("latency, ms (min / median / p99 / max)", &|it| {
        it.latency.cell()
    })?;
    rows("Envoy CPU per request, µs", &|it| {
        format!("{:.1}", it.cpu_us)
    })?;
    row("  ratio to the same / to few settings", &|it| {
        let ratio = |side: &Side| it.sesame.cpu_us / side.cpu_us;
        format!(
            "{:.3} / {:.3}",
            ratio(&it.same_settings),
            ratio(&it.by_hand)
        )
    })?;
    Ok(())
}
