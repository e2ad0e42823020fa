//! `make chaos`: random faults while everything changes under load. Invariants are checked all the
//! time, and every violation is one line. The faults are a function of the seed.

#![allow(clippy::print_stdout, reason = "it reports to the user")]

mod faults;
mod history;
mod host;
mod invariants;
mod link;
mod load;
mod objects;
mod probe;
mod programs;
mod report;
mod run;
mod schedule;
mod stage;
mod volume;
mod world;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use sesame_tests::network;
use tokio::signal::unix::{SignalKind, signal};

use programs::Programs;
use run::Run;

/// Set inside the mount namespace.
const INSIDE: &str = "SESAME_CHAOS_INSIDE";

/// Kills, freezes, partitions and misconfigures a cluster with five hosts and two controllers,
/// under load. Exits with 1 if an invariant was violated.
///
/// A round consists of faults and a quiet phase, in which all hosts must converge. A request may
/// fail only if its host's Envoy was killed or frozen at that time.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
pub(crate) struct Args {
    /// Seed of all faults and changes.
    #[arg(long, env = "SESAME_SEED", default_value_t = 1)]
    seed: u64,
    /// Duration of all rounds together.
    #[arg(long, env = "CHAOS_SECONDS", default_value_t = 3600)]
    seconds: u64,
    /// Duration of a round. The last sixth is quiet.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(30..=3600))]
    round: u64,
    /// Number of the first round, to replay a violation in a later round.
    #[arg(long, default_value_t = 0)]
    first_round: u64,
    /// Seconds from the end of a round's last fault until all hosts serve the newest configuration.
    #[arg(long, default_value_t = 10)]
    converge: u64,
    /// Seconds from the end of a round's last fault until all hosts report the newest
    /// configuration, and the Gateway is Programmed. While revisions keep changing, agents report
    /// only every ten seconds.
    #[arg(long, default_value_t = 20)]
    report: u64,
    /// Seconds from the end of a round's last fault until a staged revision has reached all hosts,
    /// which have reported it. Each stage waits for its hosts' reports.
    #[arg(long, default_value_t = 60)]
    rollout: u64,
    /// Seconds after a kill or a freeze of an Envoy in which requests may fail.
    #[arg(long, default_value_t = 10)]
    grace: u64,
    /// Directory with older programs: upgrades alternate between them and the current ones.
    #[arg(long)]
    older: Option<PathBuf>,
    /// Print the faults without running them.
    #[arg(long)]
    list: bool,
    /// Directory for the logs after a violation.
    #[arg(long, default_value = "target/chaos")]
    logs: PathBuf,
}

impl Args {
    fn rounds(&self) -> std::ops::Range<u64> {
        let count = (self.seconds / self.round).max(1);
        self.first_round..self.first_round + count
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.round)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.list {
        list(&args);
        return Ok(ExitCode::SUCCESS);
    }
    network::enter_own_with_privileges().context("a private network namespace")?;
    enter_own_mounts().context("a private mount namespace")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run(args))
}

fn list(args: &Args) {
    for round in args.rounds() {
        for event in schedule::plan(args.seed, round, args.length()) {
            let [at, until] = [event.at, event.until].map(|time| time.as_secs_f64());
            println!("round {round}: {at:.1} s to {until:.1} s: {}", event.fault);
        }
    }
}

/// The hosts' disks are mounted only for this program and its children.
fn enter_own_mounts() -> std::io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let mut command = std::process::Command::new("unshare");
    let command = command.arg("--mount").arg(std::env::current_exe()?);
    let command = command.args(std::env::args_os().skip(1));
    Err(command.env(INSIDE, "yes").exec())
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let seed = args.seed;
    println!("seed {seed}; starting a cluster, controllers and hosts");
    if !volume::can_be_slow() {
        println!("disks are never slow, because only root can freeze file systems");
    }
    let programs = Programs::find(args.older.as_deref())?;
    let whole = async {
        let mut run = Run::start(args, programs).await?;
        run.all_rounds().await
    };
    let passed = tokio::select! {
        passed = whole => passed?,
        _ = interrupted.recv() => return Ok(ExitCode::from(130)),
        _ = terminated.recv() => return Ok(ExitCode::from(143)),
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
