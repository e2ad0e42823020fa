//! Runs Sesame on nodes with a real kubelet, containerd and kube-proxy, and sends requests while
//! things change. The program restarts itself in new namespaces (`confined`), so no process
//! outlives it. Needs root.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this test program reports to the user"
)]

mod adopted;
mod archive;
mod columns;
mod confined;
mod control_plane;
mod examples;
mod images;
mod kubectl;
mod load_balancer;
mod managed;
mod merged;
mod node;
mod node_files;
mod objects;
mod outages;
mod plugin;
mod pods;
mod rollouts;
mod serve;
mod services;
mod stage;
mod switched;
mod tools;
mod without_gateway_api;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser;
use futures::FutureExt as _;

use self::stage::Stage;

/// Runs Sesame in a cluster of real nodes.
#[derive(Parser)]
struct Arguments {
    /// Scenarios to run; all by default. Most run after `serve`. With `archive`, everything is
    /// installed from the archive for air-gapped sites.
    scenarios: Vec<String>,
    /// Run as the first process of the new namespaces.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Panics on failure, and otherwise restores the previous state.
type Scenario = for<'a> fn(&'a mut Stage) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// These install and remove Sesame themselves, in this order.
const INSTALLATIONS: &[(&str, Scenario)] = &[
    ("ingress-only", |stage| {
        Box::pin(examples::ingress_only(stage))
    }),
    ("without-gateway-api", |stage| {
        Box::pin(without_gateway_api::scenario(stage))
    }),
    ("managed-fleet", |stage| {
        Box::pin(examples::managed_fleet(stage))
    }),
    ("own-daemonset", |stage| {
        Box::pin(examples::own_daemonset(stage))
    }),
    ("fleets-page", |stage| {
        Box::pin(examples::fleets_page(stage))
    }),
];

const SCENARIOS: &[(&str, Scenario)] = &[
    ("serve", |stage| Box::pin(serve::scenario(stage))),
    ("columns", |stage| Box::pin(columns::scenario(stage))),
    ("agent", |stage| Box::pin(rollouts::agent(stage))),
    ("backend", |stage| Box::pin(outages::backend(stage))),
    ("reboot", |stage| Box::pin(outages::reboot(stage))),
    ("drain", |stage| Box::pin(outages::drain(stage))),
    ("kubelet", |stage| Box::pin(outages::kubelet(stage))),
    ("daemonset", |stage| Box::pin(rollouts::daemonset(stage))),
    ("controller", |stage| Box::pin(rollouts::controller(stage))),
    ("managed", |stage| Box::pin(managed::scenario(stage))),
    ("merged", |stage| Box::pin(merged::scenario(stage))),
    ("services", |stage| Box::pin(services::scenario(stage))),
    ("adopted", |stage| Box::pin(adopted::scenario(stage))),
    ("load-balancer", |stage| {
        Box::pin(load_balancer::scenario(stage))
    }),
    ("pods", |stage| Box::pin(pods::scenario(stage))),
    ("switched", |stage| Box::pin(switched::scenario(stage))),
    ("envoy", |stage| Box::pin(rollouts::envoy(stage))),
];

fn main() -> ExitCode {
    let Arguments { scenarios, inside } = Arguments::parse();
    if !nix::unistd::geteuid().is_root() {
        eprintln!("error: test nodes need root: run `sudo make test-nodes`");
        return ExitCode::from(2);
    }
    let known: Vec<&str> = INSTALLATIONS
        .iter()
        .chain(SCENARIOS)
        .map(|(name, _)| *name)
        .collect();
    if let Some(unknown) = scenarios
        .iter()
        .find(|wanted| *wanted != archive::NAME && !known.contains(&wanted.as_str()))
    {
        eprintln!(
            "error: unknown scenario {unknown:?}; expected one of {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if inside {
        let ran = runtime.block_on(AssertUnwindSafe(run(&scenarios)).catch_unwind());
        if ran.is_ok() {
            return ExitCode::SUCCESS;
        }
        runtime.block_on(async { stage::keep_traces() });
        return ExitCode::FAILURE;
    }
    images::build();
    archive::remove();
    if archive::is_wanted(&scenarios) {
        archive::build();
    }
    runtime.block_on(confined::run(&scenarios))
}

async fn run(wanted: &[String]) {
    let mut stage = Stage::start().await;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    let installations = INSTALLATIONS.iter().filter(|(name, _)| is_wanted(name));
    let others = SCENARIOS.iter().filter(|(name, _)| is_wanted(name));
    let serve = SCENARIOS.iter().filter(|(name, _)| *name == "serve");
    let mut all: Vec<_> = installations.collect();
    let mut others: Vec<_> = others.filter(|(name, _)| *name != "serve").collect();
    if !others.is_empty() || is_wanted("serve") || all.is_empty() {
        all.extend(serve);
        all.append(&mut others);
    }
    for (name, scenario) in all {
        println!("nodes: {name}");
        let begun = std::time::Instant::now();
        scenario(&mut stage).await;
        println!("nodes: {name}: ok after {} s", begun.elapsed().as_secs());
    }
}
