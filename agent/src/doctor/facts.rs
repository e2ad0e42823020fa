//! Facts about a host, from which the checks derive findings.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use sesame_proto::schema::Transport;

/// All facts about a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Settings file, and its problems.
    pub settings: (Option<PathBuf>, Vec<String>),
    /// State of the agent.
    pub agent: AgentFacts,
    /// Limits on watched files.
    pub inotify: InotifyFacts,
    /// Sockets that the accepted configuration needs.
    pub ports: Vec<PortFacts>,
    /// Lowest port that a process without capabilities may bind.
    pub first_free_port: u16,
    /// True if the agent's user may bind privileged ports.
    pub binds_low: bool,
    /// Memory that the agent and Envoy may use, in bytes.
    pub memory: u64,
    /// Heap limit for each Envoy in bytes, or `None` for the default.
    pub heap: Option<u64>,
    /// Limit and current number of tasks in the agent's control group. `None` if unlimited.
    pub tasks: Option<(u64, u64)>,
    /// Number of CPU cores.
    pub cores: usize,
    /// Limit on open files per process.
    pub open_files: u64,
    /// State of the clock.
    pub clock: ClockFacts,
    /// File systems of the state and runtime directories.
    pub disks: Vec<DiskFacts>,
    /// Missing directories, and the user IDs that should own them.
    pub missing: Vec<(PathBuf, u32)>,
    /// Paths with the wrong owner or mode.
    pub misplaced: Vec<PathFacts>,
    /// The Envoy binary, or why it cannot be used.
    pub envoy: Result<EnvoyFacts, String>,
    /// True if `net.ipv4.tcp_migrate_req` is set. `None` if the kernel lacks this setting.
    pub migrates: Option<bool>,
    /// `Ok` if connections can be steered between two Envoy processes; otherwise, the reason.
    pub steering: Result<(), String>,
    /// Owner of the state directory, if this process is root and the owner is not. Only that user
    /// can check the cluster and connection steering.
    pub unprivileged_owner: Option<String>,
    /// State of the cluster, or `None` if it was not checked.
    pub cluster: Option<ClusterFacts>,
    /// Certificate warnings. The flag is true if clients already reject the certificate.
    pub certificates: Vec<(bool, String)>,
    /// Number of served certificates.
    pub certificate_count: usize,
    /// SELinux or AppArmor, with its mode or profile, if active.
    pub confinement: Option<String>,
    /// State of the systemd units. `None` without systemd.
    pub units: Option<Vec<UnitFacts>>,
}

/// State of the agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// Process ID, or `None` if unknown or not running.
    pub pid: Option<u32>,
    /// Why a running agent could not be queried.
    pub silent: Option<String>,
    /// Problems that the agent reports.
    pub reasons: Vec<String>,
    /// Warnings that the agent reports.
    pub warnings: Vec<String>,
}

/// Limits on watched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct InotifyFacts {
    /// Maximum number of inotify instances per user.
    pub instances: usize,
    /// Instances that each Envoy process can use while two are running.
    pub each: usize,
    /// Instances that an Envoy needs if each resource is in its own file.
    pub wanted: usize,
    /// Instances that the running Envoy processes use.
    pub used: usize,
    /// Instances reserved for the next Envoy processes. `None` if no agent is running.
    pub held: Option<usize>,
    /// Maximum number of inotify watches per user.
    pub watches: usize,
}

/// A socket that the configuration needs.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Gateway that needs the socket.
    pub gateway: String,
    /// Transport protocol.
    pub transport: Transport,
    /// Address to bind.
    pub address: IpAddr,
    /// Port to bind.
    pub port: u16,
    /// Process that holds the port, if any is visible.
    pub owner: Option<(u32, String)>,
    /// True if an Envoy process on this host holds the port.
    pub own: bool,
    /// True if the port can be bound now.
    pub bindable: bool,
}

/// State of the clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// The current time.
    pub now: Timestamp,
    /// True if synchronized, or `None` if unknown.
    pub synchronized: Option<bool>,
    /// When a configuration was last accepted.
    pub last_accepted: Option<Timestamp>,
}

/// The file system that contains a directory.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Name of the option that sets the directory.
    pub option: &'static str,
    /// Path of the directory.
    pub path: PathBuf,
    /// Number of free bytes.
    pub free: u64,
    /// Number of free inodes. `None` if the file system has no fixed number.
    pub inodes: Option<u64>,
    /// True for tmpfs and similar file systems.
    pub in_memory: bool,
}

/// A path with the wrong owner or mode.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Path.
    pub path: PathBuf,
    /// User ID of the actual owner.
    pub owner: u32,
    /// User ID of the expected owner.
    pub wanted_owner: u32,
    /// Actual mode.
    pub mode: u32,
    /// Allowed permission bits.
    pub wanted_mode: u32,
}

/// The Envoy binary.
#[derive(Clone, Debug)]
pub struct EnvoyFacts {
    /// Path of the binary.
    pub path: PathBuf,
    /// Version of the binary.
    pub version: String,
    /// Version of the hot restart protocol, or why it is unknown.
    pub hot_restart: Result<String, String>,
    /// `Ok` if shared memory for hot restarts can be created; otherwise, the reason.
    pub shared_memory: Result<(), String>,
}

/// The API server.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// Why the API server cannot be reached.
    pub unreachable: Option<String>,
    /// Version of the API server.
    pub version: String,
    /// Missing permissions, such as `list configmaps in sesame-system`.
    pub denied: Vec<String>,
    /// Why the permissions could not be checked.
    pub unknown: Option<String>,
}

/// State of a systemd unit.
#[derive(Clone, Debug)]
pub struct UnitFacts {
    /// Name of the unit.
    pub name: String,
    /// Enablement state, such as `enabled`. Empty if the unit does not exist.
    pub file_state: String,
    /// Active state, such as `failed`.
    pub active_state: String,
}
