//! Sesame on real nodes: kubelets, containerd and kube-proxy around the real API server, and requests to every node while
//! Pods, images, nodes and backends come and go.
//!
//! The program starts itself again as the first process of namespaces of its own (`confined`), where no network leads out. A
//! node is namespaces within those. Nothing of it outlives the run. Needs root.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it is a test, and talks to a person"
)]

mod archive;
mod confined;
mod control_plane;
mod images;
mod kubectl;
mod managed;
mod node;
mod node_files;
mod objects;
mod outages;
mod rollouts;
mod serve;
mod stage;
mod tools;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser;
use futures::FutureExt as _;

use self::stage::Stage;

/// Runs Sesame in a cluster of real nodes.
#[derive(Parser)]
struct Arguments {
    /// Scenarios to run after `serve`; all by default. With `archive`, everything is installed from the archive for sites
    /// without a network.
    scenarios: Vec<String>,
    /// Run as the first process of the namespaces.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Scenario, which panics if something is wrong, and leaves everything as it found it.
type Scenario = for<'a> fn(&'a mut Stage) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Scenarios by name, in the order in which they run.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("serve", |stage| Box::pin(serve::scenario(stage))),
    ("agent", |stage| Box::pin(rollouts::agent(stage))),
    ("backend", |stage| Box::pin(outages::backend(stage))),
    ("reboot", |stage| Box::pin(outages::reboot(stage))),
    ("drain", |stage| Box::pin(outages::drain(stage))),
    ("kubelet", |stage| Box::pin(outages::kubelet(stage))),
    ("daemonset", |stage| Box::pin(rollouts::daemonset(stage))),
    ("controller", |stage| Box::pin(rollouts::controller(stage))),
    ("managed", |stage| Box::pin(managed::scenario(stage))),
    ("envoy", |stage| Box::pin(rollouts::envoy(stage))),
];

fn main() -> ExitCode {
    let Arguments { scenarios, inside } = Arguments::parse();
    if !nix::unistd::geteuid().is_root() {
        eprintln!("error: nodes need root; `sudo make test-nodes`");
        return ExitCode::from(2);
    }
    if let Some(unknown) = scenarios.iter().find(|wanted| {
        *wanted != archive::NAME && !SCENARIOS.iter().any(|(name, _)| name == wanted)
    }) {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "error: no scenario {unknown:?}; there are {}",
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
    // Out here there is a network, if they have to be fetched.
    sesame_tests::cluster::crd_files(sesame_tests::cluster::Channel::Standard);
    runtime.block_on(confined::run(&scenarios))
}

/// Runs scenarios in one cluster; `serve` makes what the others need.
async fn run(wanted: &[String]) {
    let mut stage = Stage::start().await;
    for (name, scenario) in SCENARIOS {
        if *name != "serve" && !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        println!("nodes: {name}");
        scenario(&mut stage).await;
        println!("nodes: {name}: ok");
    }
}
