//! `make conformance`: runs the unmodified Gateway API conformance suite against a real API server.
//! `tests/conformance/nodes` stands in for nodes: it runs each backend in a separate network
//! namespace. All processes exit with this program.

#![allow(clippy::print_stdout, reason = "it reports to the user")]

mod leftovers;
mod progress;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use sesame_tests::cluster::gateway_api_version;
use stage::Stage;

/// Runs the Gateway API conformance suite against Sesame on this machine.
#[derive(Debug, Parser)]
struct Args {
    /// Directory with the built suite, `nodes` and `echo-basic`; also receives the logs and the
    /// report.
    #[arg(long)]
    directory: PathBuf,
    /// Release of the Gateway API to install; must match the suite's release.
    #[arg(long, default_value = gateway_api_version())]
    release: String,
    /// The Gateway API's release channel.
    #[arg(long, value_enum, default_value_t = ChannelArg::Experimental)]
    channel: ChannelArg,
    /// Number of consecutive runs of the suite on the same cluster.
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Clients that send the suite's HTTP requests, in separate runs. Over HTTP/3, tests without HTTP
    /// requests are left out.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ClientArg::Tcp, ClientArg::Http3])]
    clients: Vec<ClientArg>,
    /// The suite's own arguments, such as `--run-test=HTTPRouteCORS` or `--disable-parallel-tests`.
    #[arg(last = true)]
    suite: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChannelArg {
    /// Stable kinds and fields only.
    Standard,
    /// All kinds and fields.
    Experimental,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientArg {
    /// The suite's own client, for HTTP/1.1 and HTTP/2.
    Tcp,
    /// A client for HTTP/3. HTTP listeners become HTTPS listeners.
    Http3,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    sesame_tests::network::enter_own().context("a private network namespace")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        passed = conform(args) => Ok(if passed? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        _ = interrupted.recv() => Ok(ExitCode::from(130)),
        _ = terminated.recv() => Ok(ExitCode::from(143)),
    }
}

async fn conform(args: &Args) -> anyhow::Result<bool> {
    eprintln!("starting a cluster, a controller, an agent and nodes");
    let mut stage = Stage::start(args).await?;
    let mut passed = true;
    let runs = std::iter::repeat_n(&args.clients, args.runs as usize).flatten();
    for client in runs {
        eprintln!("the suite with its requests over {client:?}");
        let start = Instant::now();
        passed &= stage.suite(*client, &args.suite).await?;
        eprintln!("took {} seconds", start.elapsed().as_secs());
        if !args
            .suite
            .iter()
            .any(|argument| argument.contains("cleanup"))
        {
            passed &= stage.tidy().await?;
        }
    }
    stage.stop()?;
    eprintln!("logs and the report: {}", args.directory.display());
    Ok(passed)
}
