//! `sesame-agent launcher`: starts Envoy for an agent in another container or unit.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::envoy::EnvoyArgs;
use sesame_engine::shutdown::{any_left, end_all, end_own};
use sesame_envoy::locate;
use sesame_envoy::process::identity::Executable;
use sesame_envoy::process::launcher::Server;
use sesame_envoy::process::succession;
use sesame_host::{core_dumps, create_directory, service_manager};

#[derive(Debug, Args)]
pub(crate) struct LauncherArgs {
    #[command(flatten)]
    envoy: EnvoyArgs,
    /// Set net.ipv4.tcp_migrate_req, which lets the kernel move connections between a port's
    /// sockets, and exit. This needs a privilege that the launcher itself does not need.
    #[arg(long)]
    prepare: bool,
    /// Replace a launcher in another container on the same host, such as an older Pod's. The agent
    /// then moves to this launcher's Envoy processes. The other launcher needs this option, too,
    /// and exits after its own Envoy processes.
    #[arg(long)]
    take_over: bool,
    /// For a startup probe: exit with 0 if this container's launcher and its Envoy processes have
    /// replaced all others.
    #[arg(long, conflicts_with_all = ["prepare", "take_over"])]
    check: bool,
}

const PLACE: Duration = Duration::from_secs(1);
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

pub(crate) fn main(args: &LauncherArgs) -> anyhow::Result<u8> {
    let LauncherArgs {
        envoy,
        prepare,
        take_over,
        check,
    } = args;
    if *prepare {
        return set_migrate().map(|()| 0);
    }
    let binary = locate::locate(envoy.envoy.as_deref())?;
    let (runtime_dir, drain) = (&envoy.runtime_dir, envoy.drain());
    let runtime_dir = create_directory(runtime_dir)
        .and_then(|()| runtime_dir.canonicalize())
        .with_context(|| format!("--runtime-dir {}", runtime_dir.display()))?;
    if *check {
        let pending = succession::pending(&runtime_dir, &binary)?;
        return Ok(pending.map_or(0, |why| {
            eprintln!("not yet: {why}");
            1
        }));
    }
    core_dumps::prevent();
    let own = Executable::at(&binary).with_context(|| binary.display().to_string())?;
    // Resolve the path now, because an upgrade may replace the file before `exec`.
    let program = std::env::current_exe().context("the launcher's own file")?;
    super::agent::runtime()?.block_on(async {
        let mut reload = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let server = Server::start(&binary, &runtime_dir, *take_over)
            .with_context(|| format!("cannot serve in {}", runtime_dir.display()))?;
        tracing::info!(envoy = %binary.display(), "ready to start Envoys for the agent of {}", runtime_dir.display());
        service_manager::ready("ready to start Envoys");
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = tokio::time::sleep(PLACE), if *take_over => {
                    match server.reclaim() {
                        Ok(false) => {}
                        Ok(true) => tracing::info!(
                            "the other launcher has exited; this launcher responds on the socket \
                             again"
                        ),
                        Err(error) => tracing::error!(%error, "no launcher responds"),
                    }
                    continue;
                }
                _ = reload.recv() => {}
            }
            server.answered().await;
            tracing::info!("replacing this process with {}; Envoys keep serving", program.display());
            // `exec` does not return if it succeeds.
            let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
            tracing::error!("cannot run {}, so this launcher keeps running: {error}", program.display());
        }
        service_manager::stopping("draining and stopping Envoys");
        server.stop().await;
        serve_on(&runtime_dir, envoy.lame_duck()).await;
        tracing::info!("stopping; connections have up to {drain:?} to finish");
        let count = if *take_over {
            end_own(&runtime_dir, &own, drain).await?
        } else {
            end_all(&runtime_dir, drain).await?
        };
        tracing::info!(count, "Envoys have exited");
        Ok(0)
    })
}

/// Gives load balancers time to stop sending clients here.
async fn serve_on(runtime_dir: &Path, lame_duck: Duration) {
    if !lame_duck.is_zero() && any_left(runtime_dir) {
        tracing::info!("stopping; Envoys start draining in {lame_duck:?}");
        tokio::time::sleep(lame_duck).await;
    }
}

/// Lets the kernel move waiting connections from a closed socket to another socket on the same
/// port.
fn set_migrate() -> anyhow::Result<()> {
    std::fs::write(MIGRATE, "1").with_context(|| {
        format!(
            "cannot set {MIGRATE}; this needs Linux 5.14 or newer, and root in this network namespace"
        )
    })
}
