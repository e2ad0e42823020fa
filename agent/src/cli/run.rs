//! `sesame-agent run`: serves until it is told to stop.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sesame_gateway_api::api::Network;

use super::host::HostArgs;
use super::source::SourceArgs;
use crate::run::{self, DEFAULT_RUNTIME_DIR, DEFAULT_STATE_DIR, OnStop, RunOptions};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    host: HostArgs,
    /// Listen on those addresses of this host that are in this network; repeatable, and beside --address.
    #[arg(
        long = "address-pool",
        env = "SESAME_ADDRESS_POOL",
        value_delimiter = ',',
        value_name = "CIDR",
        help_heading = "Host"
    )]
    address_pools: Vec<Network>,
    /// Tell that this host is reached here, where it listens on all addresses; repeatable. By default the addresses of
    /// interfaces that lead to others, and not those of bridges, Pods and tunnels.
    #[arg(
        long = "report-address",
        env = "SESAME_REPORT_ADDRESSES",
        value_delimiter = ',',
        value_name = "IP",
        help_heading = "Host"
    )]
    report_addresses: Vec<IpAddr>,
    /// Where the accepted configuration is kept over reboots. Holds private keys.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Where sockets and the files that Envoy watches are; best on tmpfs. Holds private keys.
    #[arg(long, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    runtime_dir: PathBuf,
    /// The Envoy to run; else `envoy` on the PATH.
    #[arg(long, env = "ENVOY", value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Envoy's worker threads; one for each core by default.
    #[arg(long, env = "SESAME_CONCURRENCY", value_name = "N")]
    concurrency: Option<u32>,
    /// How many files each Envoy may watch; by default what the inotify limit leaves.
    #[arg(long, env = "SESAME_SUBSCRIPTION_BUDGET", value_name = "N")]
    subscription_budget: Option<usize>,
    /// Envoy is started by `sesame-agent launcher`, which serves the same runtime directory: in a container or unit of its own,
    /// which the end of the agent's does not reach.
    #[arg(long, env = "SESAME_LAUNCHER")]
    launcher: bool,
    /// InstanceCommand becomes of Envoy when the agent is told to stop (SIGTERM, SIGINT): it serves on and the next agent adopts it,
    /// or it is drained and ended. `sesame-agent drain --stop` ends both in any case.
    #[arg(long, env = "SESAME_ON_STOP", value_enum, default_value_t)]
    on_stop: OnStop,
    /// The heap of each Envoy; by default three quarters of the memory of the control group, or of the host.
    #[arg(long, env = "SESAME_ENVOY_HEAP_MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 24), value_name = "MIB")]
    envoy_heap_mib: Option<u64>,
    /// How long connections may go on when Envoy is ended, or their listener or Envoy is replaced.
    #[arg(
        long,
        env = "SESAME_DRAIN_SECONDS",
        default_value_t = 30,
        value_name = "SECONDS"
    )]
    drain_seconds: u64,
    /// Hold a revision that removes more than this share of ten or more listeners, virtual hosts or backends; 100
    /// holds nothing.
    #[arg(
        long,
        env = "SESAME_MAX_REMOVAL_SHARE",
        default_value_t = 50,
        value_parser = clap::value_parser!(u8).range(0..=100),
        value_name = "PERCENT"
    )]
    max_removal_share: u8,
    /// How long the source must stick to such a revision until it is applied without being accepted.
    #[arg(
        long,
        env = "SESAME_REMOVAL_HOLD_SECONDS",
        default_value_t = 300,
        value_name = "SECONDS"
    )]
    removal_hold_seconds: u64,
    /// How long to serve on after readiness is lost, with --on-stop drain.
    #[arg(
        long,
        env = "SESAME_LAME_DUCK_SECONDS",
        default_value_t = 0,
        value_name = "SECONDS"
    )]
    lame_duck_seconds: u64,
    /// Answer /livez and /readyz here as well; they are always on the agent's socket.
    #[arg(long, env = "SESAME_HEALTH_ADDRESS", value_name = "IP:PORT")]
    health_address: Option<SocketAddr>,
    /// How long an Envoy may take to take over from the one that runs.
    #[arg(
        long,
        env = "SESAME_TAKEOVER_SECONDS",
        default_value_t = 60,
        value_name = "SECONDS"
    )]
    takeover_seconds: u64,
}

pub(crate) fn main(args: RunArgs) -> anyhow::Result<u8> {
    let RunArgs {
        source,
        host,
        address_pools,
        report_addresses,
        state_dir,
        runtime_dir,
        envoy,
        concurrency,
        subscription_budget,
        launcher,
        on_stop,
        envoy_heap_mib,
        drain_seconds,
        max_removal_share,
        removal_hold_seconds,
        lame_duck_seconds,
        health_address,
        takeover_seconds,
    } = args;
    let mut addresses = host.addresses.clone();
    if !address_pools.is_empty() {
        let found = run::in_networks(&address_pools);
        let pools: Vec<String> = address_pools.iter().map(ToString::to_string).collect();
        if found.is_empty() {
            anyhow::bail!(
                "--address-pool {}: this host has no address in it; see `ip address`",
                pools.join(",")
            );
        }
        for ip in found {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
    }
    run::run(RunOptions {
        source: source.source()?,
        resolve: host.resolve_options(),
        limits: host.manifest_limits(),
        port_map: host.port_map,
        addresses,
        report_addresses,
        trusted_hops: host.trusted_hops,
        state_dir,
        runtime_dir,
        envoy,
        concurrency,
        subscription_budget,
        launcher,
        on_stop,
        heap: envoy_heap_mib.map(|mib| mib << 20),
        drain: Duration::from_secs(drain_seconds),
        most_removed: max_removal_share,
        hold: Duration::from_secs(removal_hold_seconds),
        lame_duck: Duration::from_secs(lame_duck_seconds),
        health_address,
        takeover: Duration::from_secs(takeover_seconds),
    })?;
    Ok(0)
}
