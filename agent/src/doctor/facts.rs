//! Plain data about a host.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use sesame_proto::schema::Transport;

/// All facts about a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Settings file, and all problems with it.
    pub settings: (Option<PathBuf>, Vec<String>),
    /// The agent.
    pub agent: AgentFacts,
    /// Limits on watched files.
    pub inotify: InotifyFacts,
    /// Sockets that the configuration requires.
    pub ports: Vec<PortFacts>,
    /// First port that needs no capability.
    pub first_free_port: u16,
    /// True if the agent's user may open privileged ports.
    pub binds_low: bool,
    /// Memory available to the agent, in bytes.
    pub memory: u64,
    /// Heap limit of each Envoy in bytes, if configured.
    pub heap: Option<u64>,
    /// Task limit of the control group, and its current number of tasks.
    pub tasks: Option<(u64, u64)>,
    /// Number of cores.
    pub cores: usize,
    /// Limit of open files of the agent and its Envoys.
    pub open_files: u64,
    /// The clock.
    pub clock: ClockFacts,
    /// File systems of the state directory and the runtime directory.
    pub disks: Vec<DiskFacts>,
    /// Missing directories, and the user who should own each.
    pub missing: Vec<(PathBuf, u32)>,
    /// Files and directories of Sesame whose owner or mode is wrong.
    pub misplaced: Vec<PathFacts>,
    /// The Envoy binary, or why it is unusable.
    pub envoy: Result<EnvoyFacts, String>,
    /// True if `net.ipv4.tcp_migrate_req` is set, or `None` if the kernel lacks it.
    pub migrates: Option<bool>,
    /// Why new connections cannot be steered between two Envoys, if they cannot.
    pub steering: Result<(), String>,
    /// The agent's user, if this process is root and that user has different permissions. Only that
    /// user can then check the cluster and the steering of connections.
    pub left_to: Option<String>,
    /// The cluster, if one is configured.
    pub cluster: Option<ClusterFacts>,
    /// Certificates that expire soon, as sentences; true if clients already reject the certificate.
    pub certificates: Vec<(bool, String)>,
    /// Number of served certificates.
    pub certificate_count: usize,
    /// Description of the active mandatory access control: SELinux or AppArmor.
    pub confinement: Option<String>,
    /// Systemd units, or `None` unless systemd runs the host.
    pub units: Option<Vec<UnitFacts>>,
}

/// The running agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// Process id, or `None` if no agent is running.
    pub pid: Option<u32>,
    /// Why the agent did not answer, if it did not.
    pub silent: Option<String>,
    /// Problems that the agent reports.
    pub reasons: Vec<String>,
    /// Problems that the agent expects.
    pub warnings: Vec<String>,
}

/// Limits on watched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct InotifyFacts {
    /// The user's limit of instances.
    pub instances: usize,
    /// Instances available to each of two Envoys.
    pub each: usize,
    /// Instances that an Envoy needs to watch each resource in a separate file.
    pub wanted: usize,
    /// Instances that the running Envoys use.
    pub used: usize,
    /// Instances that the running agent holds for the next Envoys, or `None` if no agent is
    /// running.
    pub held: Option<usize>,
    /// Files that the user may watch.
    pub watches: usize,
}

/// A socket that the configuration requires.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Gateway that the listener belongs to.
    pub gateway: String,
    /// Protocol.
    pub transport: Transport,
    /// Address that is bound.
    pub address: IpAddr,
    /// Port that is bound.
    pub port: u16,
    /// Process that holds the port, if it is visible.
    pub owner: Option<(u32, String)>,
    /// True if this process is an Envoy of this host.
    pub own: bool,
    /// True if another socket can be bound to the port now.
    pub bindable: bool,
}

/// The clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// Current time.
    pub now: Timestamp,
    /// True if the clock is synchronized, or `None` if unknown.
    pub synchronized: Option<bool>,
    /// When a configuration was last accepted.
    pub last_accepted: Option<Timestamp>,
}

/// A file system.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Option that sets the directory.
    pub option: &'static str,
    /// Directory.
    pub path: PathBuf,
    /// Free bytes.
    pub free: u64,
    /// Free inodes, or `None` if the file system does not count them.
    pub inodes: Option<u64>,
    /// True if the file system is in memory.
    pub in_memory: bool,
}

/// A file or directory.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Path.
    pub path: PathBuf,
    /// Owner of the path.
    pub owner: u32,
    /// Expected owner.
    pub wanted_owner: u32,
    /// Mode of the path.
    pub mode: u32,
    /// Most permissive mode allowed.
    pub wanted_mode: u32,
}

/// An Envoy binary.
#[derive(Clone, Debug)]
pub struct EnvoyFacts {
    /// Path of the binary.
    pub path: PathBuf,
    /// Version.
    pub version: String,
    /// Hot restart protocol version, or why it is unavailable.
    pub hot_restart: Result<String, String>,
    /// Why hot restart lacks shared memory, if it does.
    pub shared_memory: Result<(), String>,
}

/// The API server, as this host sees it.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// Why the API server is unreachable, if it is.
    pub unreachable: Option<String>,
    /// Version of the API server.
    pub version: String,
    /// Missing permissions, such as `list configmaps in sesame-system`.
    pub denied: Vec<String>,
    /// Why the permissions could not be determined, if they could not.
    pub unknown: Option<String>,
}

/// A systemd unit.
#[derive(Clone, Debug)]
pub struct UnitFacts {
    /// Name of the unit.
    pub name: String,
    /// `enabled`, `disabled`, …; empty if the unit does not exist.
    pub file_state: String,
    /// `active`, `failed`, …
    pub active_state: String,
}
