//! Starts a gateway with a performance problem, for practicing diagnosis. Stops on Ctrl-C.

use clap::{Parser, ValueEnum as _};
use sesame_tests::slowness::{self, Cause, HOST};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a gateway with a performance problem.
#[derive(Debug, Parser)]
struct Args {
    /// Gateway number, from 1 to 10; the numbering does not reveal the cause.
    number: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { number } = Args::parse();
    let causes = Cause::value_variants();
    // Shuffle, because the order of `Cause` must not reveal a gateway's cause.
    let cause = number
        .checked_sub(1)
        .filter(|number| *number < causes.len())
        .map(|number| causes[(number * 7 + 3) % causes.len()]);
    let Some(cause) = cause else {
        anyhow::bail!("unknown gateway {number}; expected 1 to {}", causes.len());
    };
    let gateway = slowness::start(cause).await;
    let agent = &gateway.agent;
    #[expect(clippy::print_stdout, reason = "prints the command's output")]
    {
        println!("http://{}/ (host {HOST})", agent.address(80));
        println!("export SESAME_RUNTIME_DIR={}", agent.runtime().display());
        println!("export SESAME_STATE_DIR={}", agent.state().display());
        println!("manifests: {}", agent.manifests().display());
    }
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    drop(gateway);
    Ok(())
}
