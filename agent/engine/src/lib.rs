//! A running agent: reads a configuration source, and runs Envoy to serve the configuration.
//!
//! A `source` starts an engine. The engine computes each Gateway's `target`, and the Gateway's
//! `instance` applies it to an Envoy. Channels keep only the newest value.

#![cfg_attr(test, allow(clippy::too_many_lines))]

mod accepted;
mod addresses;
mod agent;
mod answering;
mod bundles;
pub mod certificates;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "no_cluster.rs"]
mod cluster;
pub mod commands;
mod directories;
mod engine;
pub mod events;
pub mod explaining;
mod following;
mod gateways;
pub mod history;
pub mod inspect;
mod instance;
mod kept_keys;
mod lifecycle;
mod metrics;
mod observed;
mod orders;
mod page;
pub(crate) mod passwords;
pub mod reload;
pub mod report;
mod server;
mod services;
pub mod shutdown;
mod snapshot_engine;
mod source;
mod spans;
pub mod system_ca;
mod target;
mod unit;
mod withdrawal;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::addresses::HostEndpoints;
pub use self::addresses::host::in_networks;
pub use self::directories::DirectoriesError;
use self::reload::{ReadSettings, SettingsReading};
pub use self::shutdown::OnStop;
pub use self::source::Source;

use sesame_http_server::guard::GuardFiles;
use sesame_spans::CollectorSettings;

use sesame_envoy::access_log::AccessLogSettings;
use sesame_host::core_dumps;
use sesame_host::free_ports::PortMap;
use sesame_sources::local::LocalFile;
use sesame_sources::manifests::ReadLimits;
use sesame_sources::seal::SealSettings;

/// Name of the agent's socket, in the runtime directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// Default runtime directory.
pub const DEFAULT_RUNTIME_DIR: &str = "/run/sesame";
/// Default state directory.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sesame";

/// Options for [`run`].
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The source of configuration.
    pub source: Source,
    /// Options for resolving manifests.
    pub resolve: sesame_resolver::Options,
    /// Files on this host that replace Secrets and ConfigMaps.
    pub local_files: Vec<LocalFile>,
    /// Program that changes DNS records for certificate orders by ACME.
    pub acme_dns_hook: Option<PathBuf>,
    /// Limits for reading a manifest directory.
    pub limits: ReadLimits,
    /// Ports to bind, by the port that clients use.
    pub port_map: PortMap,
    /// Addresses to listen on; if empty, all addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses where clients reach the host, reported for Gateways that listen on all addresses;
    /// detected if empty.
    pub report_addresses: Vec<IpAddr>,
    /// Interval between reports to a cluster while nothing changes.
    pub report_every: Duration,
    /// True if endpoints must not have this host's addresses.
    pub refuse_host_endpoints: bool,
    /// Number of proxies in front of Envoy whose forwarding headers are trusted.
    pub trusted_hops: u32,
    /// Number of hosts that share fleet limits, unless a controller counts them.
    pub fleet_hosts: u32,
    /// Zone of this host; empty if unknown.
    pub zone: String,
    /// Access logs.
    pub access_log: AccessLogSettings,
    /// State directory, which survives reboots.
    pub state_dir: PathBuf,
    /// Settings for sealing the private keys in the state directory.
    pub seal: SealSettings,
    /// Runtime directory, with the sockets and Envoy's files.
    pub runtime_dir: PathBuf,
    /// Envoy binary to run; `None` means the one on `PATH`.
    pub envoy: Option<PathBuf>,
    /// Number of Envoy's worker threads.
    pub concurrency: Option<u32>,
    /// Number of files that each Envoy may watch.
    pub subscription_budget: Option<usize>,
    /// Heap limit for each Envoy, in bytes.
    pub heap: Option<u64>,
    /// Maximum time for connections to finish when Envoy is stopped.
    pub drain: Duration,
    /// Percentage of its time that each Envoy's main thread may spend on frequent changes; with
    /// 100, no change is delayed.
    pub apply_share: u8,
    /// Percentage of the configuration that a revision may remove without being held; at 100,
    /// revisions are never held.
    pub most_removed: u8,
    /// How long a revision that removes more than `most_removed` is held. It is then applied if the
    /// source still contains it.
    pub hold: Duration,
    /// How long a CA certificate stays trusted after a rotation removed it; `None` means that the
    /// configuration decides.
    pub bundle_overlap: Option<Duration>,
    /// Time between becoming unready and draining, if `on_stop` requests a drain.
    pub lame_duck: Duration,
    /// True if a launcher in another container or unit starts Envoy.
    pub launcher: bool,
    /// What happens to Envoy when a signal stops the agent.
    pub on_stop: OnStop,
    /// Interval between rotations of session ticket keys; `None` means that Envoy manages the keys.
    pub session_tickets: Option<Duration>,
    /// TCP address for `/livez` and `/readyz`.
    pub health_address: Option<SocketAddr>,
    /// Options for `/metrics`.
    pub metrics: MetricsOptions,
    /// Timeout for a new Envoy to take over from the previous one.
    pub takeover: Duration,
    /// Collector that receives spans.
    pub spans: Option<CollectorSettings>,
}

/// Options for `/metrics`.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// TCP address for `/metrics`.
    pub address: Option<SocketAddr>,
    /// Files that restrict access to `/metrics`.
    pub guard: GuardFiles,
    /// Maximum number of backends per Gateway with their own series.
    pub most_backends: usize,
}

/// Runs the agent until it is stopped. Envoy keeps serving after that, unless a drain was
/// requested. `reader` rereads the settings.
pub fn run(reading: SettingsReading, reader: Arc<dyn ReadSettings>) -> anyhow::Result<()> {
    core_dumps::prevent();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("agent")
        .build()?;
    runtime.block_on(agent::run(reading, reader))
}
