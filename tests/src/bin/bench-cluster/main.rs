//! `make bench-cluster`: measures the latency and cost of API changes with different numbers of
//! HTTPRoutes. The *floor* is the time that Envoy needs to apply the same files without the agent.
//! Everything runs in a network namespace, because the API server rejects loopback endpoints.

mod churn;
#[path = "../bench/client.rs"]
#[allow(dead_code, reason = "shared with the other benchmark")]
mod client;
#[path = "../bench/cluster_list.rs"]
mod cluster_list;
mod figures;
mod floors;
mod objects;
mod stage;
#[path = "../bench/storm.rs"]
mod storm;
#[path = "../bench/times.rs"]
mod times;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use sesame_tests::network;

use figures::Figures;
use stage::Stage;

/// Measures Sesame with a cluster on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// Number of HTTPRoutes; repeatable.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000, 10_000])]
    routes: Vec<usize>,
    /// Number of changes per kind.
    #[arg(long, default_value_t = 60)]
    changes: usize,
    /// Duration of the churn.
    #[arg(long, default_value_t = 30)]
    churn_seconds: u64,
    /// JSON file for the figures.
    #[arg(long, default_value = "target/bench-cluster.json")]
    json: std::path::PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    network::enter_own().context("a private network namespace")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut all: Vec<Figures> = Vec::new();
    for routes in &args.routes {
        eprintln!("{routes} routes");
        let churn = Duration::from_secs(args.churn_seconds);
        let measured = runtime.block_on(measure(*routes, args.changes, churn));
        all.push(measured.with_context(|| format!("{routes} routes"))?);
        if let Some(dir) = args.json.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(&args.json, serde_json::to_vec_pretty(&all)?)?;
        figures::print(&all)?;
    }
    eprintln!("figures as JSON: {}", args.json.display());
    Ok(())
}

async fn measure(routes: usize, changes: usize, churn: Duration) -> anyhow::Result<Figures> {
    let mut figures = Figures {
        routes,
        ..Figures::default()
    };
    eprintln!("  a cluster");
    let mut stage = Stage::start(routes).await?;
    eprintln!("  Services");
    stage.create_backends().await?;
    eprintln!("  routes");
    (figures.attached, figures.creation_cpu) = stage.create_routes().await?;
    eprintln!("  at rest");
    figures.controller_rest_cpu_percent = stage.controller_cpu(Duration::from_secs(5)).await?;
    (
        figures.controller_rest_mib,
        figures.controller_start_peak_mib,
    ) = stage.controller_mib();
    eprintln!("  route changes");
    (figures.route_change, figures.writes_per_route_change) =
        stage.route_changes(changes, &mut figures.errors).await?;
    eprintln!("  endpoint changes");
    (figures.endpoint_change, figures.writes_per_endpoint_change) =
        stage.endpoint_changes(changes, &mut figures.errors).await?;
    eprintln!("  backend switches");
    figures.switch = stage.switches(changes, &mut figures.errors).await?;
    (figures.agent_mib, _) = stage.agent_mib()?;
    eprintln!("  churn");
    let churned = stage.churn(churn, &mut figures.errors)?;
    figures.route_change_in_churn = churned.route_change;
    figures.endpoint_change_in_churn = churned.endpoint_change;
    figures.controller_churn_cpu_percent = churned.controller_cpu_percent;
    figures.envoy_main_cpu = churned.envoy_main_cpu;
    figures.agent_cpu = churned.agent_cpu;
    figures.endpoint_changes_a_second = churned.endpoint_changes_a_second;
    (_, figures.controller_peak_mib) = stage.controller_mib();
    (_, figures.agent_peak_mib) = stage.agent_mib()?;
    eprintln!("  killed controller");
    figures.controller_restart = stage.controller_restarts(&mut figures.errors).await?;
    eprintln!("  floors");
    let floors = stage.floors(changes, &mut figures.errors).await?;
    (figures.route_floor, figures.clusters_floor) = (floors.route, floors.clusters);
    eprintln!("  deletion");
    figures.detached = stage.delete_routes().await?;
    Ok(figures)
}
