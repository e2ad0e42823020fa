//! `sesame-agent launcher`: starts Envoys for an agent in another container or unit, and ends them at its own end.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::apply::create_directory;
use crate::envoy::launcher::Server;
use crate::envoy::locate;
use crate::run::DEFAULT_RUNTIME_DIR;
use crate::run::shutdown::end_all;

#[derive(Debug, Args)]
pub(crate) struct LauncherArgs {
    /// The runtime directory of the agent, at the same path.
    #[arg(long, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    runtime_dir: PathBuf,
    /// The Envoy to run, of the same version as the agent's; else `envoy` on the PATH.
    #[arg(long, env = "ENVOY", value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// How long connections may go on when it is told to stop.
    #[arg(
        long,
        env = "SESAME_DRAIN_SECONDS",
        default_value_t = 30,
        value_name = "SECONDS"
    )]
    drain_seconds: u64,
    /// Only have the kernel move connections between the sockets of a port (net.ipv4.tcp_migrate_req), and end. That needs a
    /// right that a launcher itself does without.
    #[arg(long)]
    prepare: bool,
}

/// Of the network namespace that this process is in.
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

pub(crate) fn main(args: &LauncherArgs) -> anyhow::Result<u8> {
    let LauncherArgs {
        runtime_dir,
        envoy,
        drain_seconds,
        prepare,
    } = args;
    if *prepare {
        std::fs::write(MIGRATE, "1").with_context(|| {
            format!(
                "{MIGRATE} cannot be set; it needs Linux 5.14 and root's rights on this network"
            )
        })?;
        return Ok(0);
    }
    let binary = locate::locate(envoy.as_deref())?;
    let runtime_dir = create_directory(runtime_dir)
        .and_then(|()| runtime_dir.canonicalize())
        .with_context(|| format!("--runtime-dir {}", runtime_dir.display()))?;
    super::agent::runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let server = Server::start(&binary, &runtime_dir)
            .with_context(|| format!("cannot serve in {}", runtime_dir.display()))?;
        tracing::info!(envoy = %binary.display(), "Envoys are started for the agent of {}", runtime_dir.display());
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        server.stop().await;
        tracing::info!("stopping; connections have up to {drain_seconds} s");
        let count = end_all(&runtime_dir, Duration::from_secs(*drain_seconds)).await?;
        tracing::info!(count, "Envoys have ended");
        Ok(0)
    })
}
