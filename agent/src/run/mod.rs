//! A running agent: from a source of configuration to Envoys that serve it.
//!
//! `source` starts an engine (a thread): `engine` for manifests, `snapshots` for what others have resolved. It says what
//! each Gateway wants; `conductor` keeps one `instance`
//! (a task with its Envoy) for each Gateway, whose `publisher` brings that Envoy to it; `server` answers what people ask. Values go one way, through
//! channels that keep only the newest.

mod accepted;
mod addresses;
mod agent;
#[cfg(feature = "cluster")]
mod cluster;
pub mod commands;
mod directories;
mod engine;
pub mod history;
mod instance;
mod observed;
pub mod report;
mod server;
pub mod shutdown;
mod snapshot_engine;
mod source;
pub(crate) mod system_ca;
mod target;
mod withdrawal;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::addresses::host::in_networks;
pub use self::directories::DirectoriesError;
pub use self::shutdown::OnStop;
pub use self::source::Source;

use crate::source::manifests::Limits;

/// The agent's socket in the runtime directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// Where sockets and Envoy's files are unless told.
pub const DEFAULT_RUNTIME_DIR: &str = "/run/sesame";
/// Where the accepted configuration is kept unless told.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sesame";

/// What [`run`] is told.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where configuration comes from.
    pub source: Source,
    /// How to resolve manifests.
    pub resolve: sesame_gateway_api::resolve::Options,
    /// What a directory of manifests may be.
    pub limits: Limits,
    /// Outside port to bound port.
    pub port_map: BTreeMap<u32, u32>,
    /// Addresses to listen on; empty for all.
    pub addresses: Vec<IpAddr>,
    /// Where clients reach the host, for Gateways that listen on all addresses; empty for what the host finds.
    pub report_addresses: Vec<IpAddr>,
    /// Proxies before Envoy whose forwarding headers are trusted.
    pub trusted_hops: u32,
    /// Survives reboots.
    pub state_dir: PathBuf,
    /// Sockets and Envoy's files.
    pub runtime_dir: PathBuf,
    /// The Envoy to run, if not the one on the PATH.
    pub envoy: Option<PathBuf>,
    /// Envoy's worker threads.
    pub concurrency: Option<u32>,
    /// Files that each Envoy may watch.
    pub subscription_budget: Option<usize>,
    /// Bytes of heap of each Envoy.
    pub heap: Option<u64>,
    /// How long connections may go on where Envoys are ended.
    pub drain: Duration,
    /// A revision that removes more than so many per cent of what is served is held; 100 holds nothing.
    pub most_removed: u8,
    /// How long, if the source sticks to it.
    pub hold: Duration,
    /// From the loss of readiness to the begin of that.
    pub lame_duck: Duration,
    /// Whether a launcher that stays starts Envoys.
    pub launcher: bool,
    /// What becomes of Envoys when a signal says to stop.
    pub on_stop: OnStop,
    /// Where to answer `/livez` and `/readyz` over TCP.
    pub health_address: Option<SocketAddr>,
    /// How long an Envoy may take to take over from another one.
    pub takeover: Duration,
}

/// Serves until it is told to stop. Envoys serve on, unless they are to be drained and ended.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("agent")
        .build()?;
    runtime.block_on(agent::run(options))
}
