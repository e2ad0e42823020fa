//! `make bench-fleet`: measures a fleet's load on the API server and the controller, and the
//! latency of changes. A light agent runs the real agent's code without an Envoy. The *floor* is
//! the cost of the same number of clients that only watch one ConfigMap.

mod bare;
mod crowd;
mod figures;
mod light;
mod measure;
mod model;
mod objects;
mod stage;
mod told;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use figures::Figures;
use stage::IdentityOfHosts;

/// Measures fleets on this machine.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    /// Number of hosts; repeatable.
    #[arg(long, value_delimiter = ',', default_values_t = [250, 500, 1000, 2000])]
    hosts: Vec<u32>,
    /// Number of HTTPRoutes attached to the hosts' Gateway.
    #[arg(long, default_value_t = 100)]
    routes: usize,
    /// Number of changes per kind.
    #[arg(long, default_value_t = 5)]
    changes: usize,
    /// Duration of the idle phase.
    #[arg(long, default_value_t = 30)]
    rest_seconds: u64,
    /// Number of agents per process.
    #[arg(long, default_value_t = 500)]
    each: usize,
    /// Kind of the hosts' identity.
    #[arg(long, value_enum, default_value_t = IdentityOfHosts::Pods)]
    identity: IdentityOfHosts,
    /// JSON file for the figures. The file's figures for other sizes are kept.
    #[arg(long, default_value = "target/bench-fleet.json")]
    json: PathBuf,
    #[command(subcommand)]
    process: Option<Process>,
}

/// A client process, started by the benchmark.
#[derive(Debug, Subcommand)]
enum Process {
    /// Light agents.
    #[command(hide = true)]
    Agents {
        /// File with a list of hosts.
        list: PathBuf,
    },
    /// Bare watches.
    #[command(hide = true)]
    Watches {
        /// File with a list of hosts.
        list: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match &args.process {
        Some(process) => runtime.block_on(until_alone(process)),
        None => benchmark(&args, &runtime),
    }
}

async fn until_alone(process: &Process) -> anyhow::Result<()> {
    let clients = async {
        match process {
            Process::Agents { list } => {
                light::run(measure::hosts_of(list)?, Duration::from_secs(60)).await
            }
            Process::Watches { list } => bare::run(measure::hosts_of(list)?).await,
        }
    };
    // The thread reads until the parent closes the pipe, so it is never joined.
    let (end, alone) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut nothing = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut nothing);
        drop(end);
    });
    tokio::select! {
        outcome = clients => outcome,
        _ = alone => Ok(()),
    }
}

fn benchmark(args: &Args, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    let mut all: Vec<Figures> = match std::fs::read(&args.json) {
        Ok(text) => serde_json::from_slice(&text).context("the figures of other sizes")?,
        Err(_) => Vec::new(),
    };
    for hosts in &args.hosts {
        eprintln!("{hosts} hosts");
        let measured = runtime.block_on(measure::measure(*hosts, args));
        let measured = measured.with_context(|| format!("{hosts} hosts"))?;
        all.retain(|other| other.hosts != *hosts);
        all.push(measured);
        all.sort_by_key(|figures| figures.hosts);
        if let Some(dir) = args.json.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        figures::print(&all)?;
    }
    eprintln!("figures as JSON: {}", args.json.display());
    Ok(())
}
