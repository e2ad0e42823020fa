//! `sesame-agent run`: serves Gateways until the agent is stopped.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, CommandFactory as _};
use sesame_proto::network::Network;
use sesame_spans::SpanArgs;

use super::Cli;
use super::access_log::AccessLogArgs;
use super::envoy::EnvoyArgs;
use super::host::HostArgs;
use super::local_files::LocalFilesArgs;
use super::metrics::MetricsArgs;
use super::seal::SealArgs;
use super::settings;
use super::settings::effective::effective;
use super::settings::reader::SettingsReader;
use super::source::SourceArgs;
use sesame_engine::reload::SettingsReading;
use sesame_engine::{DEFAULT_STATE_DIR, HostEndpoints, OnStop, RunOptions};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    local: LocalFilesArgs,
    /// Also listen on this host's addresses in this network; repeatable.
    #[arg(
        long = "address-pool",
        env = "SESAME_ADDRESS_POOL",
        value_delimiter = ',',
        value_name = "CIDR",
        help_heading = "Host"
    )]
    address_pools: Vec<Network>,
    /// Address to report for a host that listens on all addresses; repeatable. By default, the
    /// addresses of interfaces that lead to other hosts.
    #[arg(
        long = "report-address",
        env = "SESAME_REPORT_ADDRESSES",
        value_delimiter = ',',
        value_name = "IP",
        help_heading = "Host"
    )]
    report_addresses: Vec<IpAddr>,
    /// Allow or refuse endpoints with one of this host's addresses, except loopback; `auto` allows
    /// them only if the agent runs in a Pod.
    #[arg(
        long,
        env = "SESAME_HOST_ENDPOINTS",
        value_enum,
        default_value_t,
        help_heading = "Host"
    )]
    host_endpoints: HostEndpoints,
    /// Time between reports to a cluster while nothing changes: 10 to 3600 seconds, plus or minus
    /// 25%.
    #[arg(
        long,
        env = "SESAME_REPORT_SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(10..=3600),
        value_name = "SECONDS",
        help_heading = "Host"
    )]
    report_seconds: u64,
    /// Directory that preserves the accepted configuration across reboots. Contains private keys.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    access_log: AccessLogArgs,
    #[command(flatten)]
    envoy: EnvoyArgs,
    /// Number of Envoy's worker threads; one per core by default.
    #[arg(long, env = "SESAME_CONCURRENCY", value_name = "N")]
    concurrency: Option<u32>,
    /// Number of files that each Envoy may watch; by default as many as the inotify limit allows.
    #[arg(long, env = "SESAME_SUBSCRIPTION_BUDGET", value_name = "N")]
    subscription_budget: Option<usize>,
    /// Have `sesame-agent launcher` start Envoy, in a separate container or unit with the same
    /// runtime directory.
    #[arg(long, env = "SESAME_LAUNCHER")]
    launcher: bool,
    /// What happens to Envoy when the agent is stopped (SIGTERM, SIGINT): it keeps serving until
    /// the next agent adopts it, or is drained and stopped.
    #[arg(long, env = "SESAME_ON_STOP", value_enum, default_value_t)]
    on_stop: OnStop,
    /// Heap limit for each Envoy; by default three quarters of the control group's or host's
    /// memory.
    #[arg(long, env = "SESAME_ENVOY_HEAP_MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 24), value_name = "MIB")]
    envoy_heap_mib: Option<u64>,
    /// Maximum percentage of time that an Envoy's main thread spends on frequent changes; further
    /// changes are delayed. A single change is applied immediately. At 100, nothing is delayed.
    #[arg(
        long,
        env = "SESAME_MAX_APPLY_SHARE",
        default_value_t = 25,
        value_parser = clap::value_parser!(u8).range(1..=100),
        value_name = "PERCENT"
    )]
    max_apply_share: u8,
    /// Hold a revision that removes more than this percentage of ten or more listeners, hostnames
    /// or backends. At 100, nothing is held.
    #[arg(
        long,
        env = "SESAME_MAX_REMOVAL_SHARE",
        default_value_t = 50,
        value_parser = clap::value_parser!(u8).range(0..=100),
        value_name = "PERCENT"
    )]
    max_removal_share: u8,
    /// Time after which a revision held by --max-removal-share is applied without `sesame-agent
    /// accept`, if the source still has it.
    #[arg(
        long,
        env = "SESAME_REMOVAL_HOLD_SECONDS",
        default_value_t = 300,
        value_name = "SECONDS"
    )]
    removal_hold_seconds: u64,
    /// How long a CA certificate stays trusted after it was replaced in its bundle: 0 to 2592000
    /// seconds. By default, rotation.bundleOverlap in the Gateway's configuration applies.
    #[arg(
        long,
        env = "SESAME_BUNDLE_OVERLAP_SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=2_592_000),
        value_name = "SECONDS"
    )]
    bundle_overlap_seconds: Option<u64>,
    /// Time between rotations of the session ticket keys, with which clients resume TLS sessions;
    /// tickets from the two previous keys are accepted, too. 0 leaves the keys to Envoy.
    #[arg(
        long,
        env = "SESAME_SESSION_TICKET_HOURS",
        default_value_t = 12,
        value_parser = clap::value_parser!(u64).range(0..=168),
        value_name = "HOURS"
    )]
    session_ticket_hours: u64,
    /// Program that adds and removes TXT records for certificates by ACME, with manifests and
    /// spec.acme.challenge DNS01. Run as `PROGRAM present|cleanup NAME VALUE`; `present` must end
    /// after the record is visible.
    #[arg(long, env = "SESAME_ACME_DNS_HOOK", value_name = "PROGRAM")]
    acme_dns_hook: Option<PathBuf>,
    /// Also serve /livez and /readyz at this address; the agent's socket always serves them.
    #[arg(long, env = "SESAME_HEALTH_ADDRESS", value_name = "IP:PORT")]
    health_address: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    spans: SpanArgs,
    /// Timeout for a new Envoy to take over from the running one.
    #[arg(
        long,
        env = "SESAME_TAKEOVER_SECONDS",
        default_value_t = 60,
        value_name = "SECONDS"
    )]
    takeover_seconds: u64,
}

/// A reload uses `reader` to parse the arguments and the settings file again.
pub(crate) fn main(args: RunArgs, reader: SettingsReader) -> anyhow::Result<u8> {
    let loaded = settings::load(&reader.arguments);
    let reading = SettingsReading {
        options: options(args)?,
        settings: effective(&Cli::command(), reader.arguments.clone(), &loaded),
    };
    sesame_engine::run(reading, Arc::new(reader))?;
    Ok(0)
}

pub(crate) fn options(args: RunArgs) -> anyhow::Result<RunOptions> {
    let RunArgs {
        source,
        host,
        local,
        address_pools,
        report_addresses,
        host_endpoints,
        report_seconds,
        state_dir,
        seal,
        access_log,
        envoy,
        concurrency,
        subscription_budget,
        launcher,
        on_stop,
        envoy_heap_mib,
        max_apply_share,
        max_removal_share,
        removal_hold_seconds,
        bundle_overlap_seconds,
        session_ticket_hours,
        acme_dns_hook,
        health_address,
        metrics,
        spans,
        takeover_seconds,
    } = args;
    let addresses = with_pools(&host.addresses, &address_pools)?;
    Ok(RunOptions {
        source: source.source(host.zone.as_deref().unwrap_or_default())?,
        resolve: host.resolve_options(),
        limits: host.manifest_limits(),
        port_map: host.port_map,
        addresses,
        report_addresses,
        refuse_host_endpoints: host_endpoints.refused(is_in_pod()),
        report_every: Duration::from_secs(report_seconds),
        trusted_hops: host.trusted_hops,
        fleet_hosts: host.fleet_hosts,
        zone: host.zone.unwrap_or_default(),
        access_log: access_log.settings(&state_dir),
        local_files: local.files(&state_dir)?,
        seal: seal.settings(&state_dir),
        state_dir,
        drain: envoy.drain(),
        lame_duck: envoy.lame_duck(),
        runtime_dir: envoy.runtime_dir,
        envoy: envoy.envoy,
        concurrency,
        subscription_budget,
        launcher,
        on_stop,
        heap: envoy_heap_mib.map(|mib| mib << 20),
        apply_share: max_apply_share,
        most_removed: max_removal_share,
        hold: Duration::from_secs(removal_hold_seconds),
        bundle_overlap: bundle_overlap_seconds.map(Duration::from_secs),
        session_tickets: hours(session_ticket_hours),
        acme_dns_hook,
        health_address,
        metrics: metrics.options(),
        takeover: Duration::from_secs(takeover_seconds),
        spans: spans.settings()?,
    })
}

fn with_pools(addresses: &[IpAddr], pools: &[Network]) -> anyhow::Result<Vec<IpAddr>> {
    let mut addresses = addresses.to_vec();
    let found = sesame_engine::in_networks(pools);
    if found.is_empty() && !pools.is_empty() {
        let pools: Vec<String> = pools.iter().map(ToString::to_string).collect();
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
    Ok(addresses)
}

/// Returns true in a Pod, where the kubelet sets this variable in every container.
fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

fn hours(hours: u64) -> Option<Duration> {
    (hours > 0).then(|| Duration::from_secs(hours * 3600))
}
