//! Plain data about a host, from which findings are derived.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use sesame_proto::schema::Transport;

/// All facts about a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Settings file, and all problems with it.
    pub settings: (Option<PathBuf>, Vec<String>),
    /// State of the agent.
    pub agent: AgentFacts,
    /// Limits on the number of watched files.
    pub inotify: InotifyFacts,
    /// Sockets that the configuration needs.
    pub ports: Vec<PortFacts>,
    /// Lowest port that can be bound without a capability.
    pub first_free_port: u16,
    /// True if the agent's user may open privileged ports.
    pub binds_low: bool,
    /// Memory available to the agent, in bytes.
    pub memory: u64,
    /// Each Envoy's heap limit in bytes, if configured.
    pub heap: Option<u64>,
    /// Task limit and current number of tasks of the control group.
    pub tasks: Option<(u64, u64)>,
    /// Number of CPU cores.
    pub cores: usize,
    /// Limit on open files, for the agent and for each Envoy.
    pub open_files: u64,
    /// State of the clock.
    pub clock: ClockFacts,
    /// File systems that contain the state directory and the runtime directory.
    pub disks: Vec<DiskFacts>,
    /// Missing directories, each with the ID of the user that should own it.
    pub missing: Vec<(PathBuf, u32)>,
    /// Sesame's files and directories whose owner or mode is wrong.
    pub misplaced: Vec<PathFacts>,
    /// The Envoy binary, or why it is unusable.
    pub envoy: Result<EnvoyFacts, String>,
    /// True if `net.ipv4.tcp_migrate_req` is set, or `None` if the kernel lacks it.
    pub migrates: Option<bool>,
    /// Error if new connections cannot be steered between two Envoys.
    pub steering: Result<(), String>,
    /// The agent's user, if this process is root and that user has different permissions. In that
    /// case, only that user can check the cluster, and whether new connections can be steered.
    pub left_to: Option<String>,
    /// State of the cluster, if one is configured.
    pub cluster: Option<ClusterFacts>,
    /// Certificates that expire soon: whether clients already reject each certificate, and its
    /// description.
    pub certificates: Vec<(bool, String)>,
    /// Number of certificates being served.
    pub certificate_count: usize,
    /// Description of the active mandatory access control: SELinux or AppArmor.
    pub confinement: Option<String>,
    /// State of the systemd units, or `None` if the host does not run systemd.
    pub units: Option<Vec<UnitFacts>>,
}

/// State of the agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// Process ID, or `None` if no agent is running.
    pub pid: Option<u32>,
    /// Why the agent did not respond, or `None` if it responded or is not running.
    pub silent: Option<String>,
    /// Problems that the agent reports.
    pub reasons: Vec<String>,
    /// Future problems that the agent warns about.
    pub warnings: Vec<String>,
}

/// Limits on the number of watched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct InotifyFacts {
    /// The user's limit on inotify instances.
    pub instances: usize,
    /// Number of instances available to each of two Envoys.
    pub each: usize,
    /// Number of instances that an Envoy needs if each resource is in a separate file.
    pub wanted: usize,
    /// Number of instances that the running Envoys use.
    pub used: usize,
    /// Number of instances that the running agent holds for the next Envoys, or `None` if no agent
    /// is running.
    pub held: Option<usize>,
    /// The user's limit on inotify watches.
    pub watches: usize,
}

/// A socket that the configuration needs.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Gateway to which the listener belongs.
    pub gateway: String,
    /// Transport protocol.
    pub transport: Transport,
    /// Address to bind.
    pub address: IpAddr,
    /// Port to bind.
    pub port: u16,
    /// ID and name of the process that holds the port, if visible.
    pub owner: Option<(u32, String)>,
    /// True if the process that holds the port is one of this host's Envoys.
    pub own: bool,
    /// True if another socket could be bound to the port now.
    pub bindable: bool,
}

/// State of the clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// The current time.
    pub now: Timestamp,
    /// True if the clock is synchronized, or `None` if unknown.
    pub synchronized: Option<bool>,
    /// Time at which a configuration was last accepted.
    pub last_accepted: Option<Timestamp>,
}

/// The file system that contains a directory.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Option that sets the directory.
    pub option: &'static str,
    /// Path of the directory.
    pub path: PathBuf,
    /// Number of free bytes.
    pub free: u64,
    /// Number of free inodes, or `None` if the file system does not count them.
    pub inodes: Option<u64>,
    /// True if the file system is in memory.
    pub in_memory: bool,
}

/// A file or directory, with its actual and expected owner and mode.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Path of the file or directory.
    pub path: PathBuf,
    /// Actual owner's user ID.
    pub owner: u32,
    /// Expected owner's user ID.
    pub wanted_owner: u32,
    /// Actual mode.
    pub mode: u32,
    /// Most permissive mode that is allowed.
    pub wanted_mode: u32,
}

/// The Envoy binary.
#[derive(Clone, Debug)]
pub struct EnvoyFacts {
    /// Path of the binary.
    pub path: PathBuf,
    /// Version of the binary.
    pub version: String,
    /// Version of the hot restart protocol, or why it is unavailable.
    pub hot_restart: Result<String, String>,
    /// Error if shared memory for hot restarts cannot be created.
    pub shared_memory: Result<(), String>,
}

/// State of the API server as seen from this host.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// Why the API server is unreachable, or `None` if it is reachable.
    pub unreachable: Option<String>,
    /// Version of the API server.
    pub version: String,
    /// Missing permissions, such as `list configmaps in sesame-system`.
    pub denied: Vec<String>,
    /// Why the permissions could not be determined, or `None` if they could.
    pub unknown: Option<String>,
}

/// State of a systemd unit.
#[derive(Clone, Debug)]
pub struct UnitFacts {
    /// Name of the unit.
    pub name: String,
    /// Enablement state: `enabled`, `disabled`, …; empty if the unit does not exist.
    pub file_state: String,
    /// Active state: `active`, `failed`, …
    pub active_state: String,
}
