//! Facts about a host, from which the checks derive findings. Contains data only.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use sesame_proto::schema::Transport;

/// All facts about a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Path of the settings file, if any, and all problems with the settings.
    pub settings: (Option<PathBuf>, Vec<String>),
    /// State of the agent.
    pub agent: AgentFacts,
    /// Limits on the number of watched files.
    pub inotify: InotifyFacts,
    /// Sockets that the accepted configuration needs.
    pub ports: Vec<PortFacts>,
    /// Lowest port that a process without capabilities may bind.
    pub first_free_port: u16,
    /// True if the agent's user may bind privileged ports.
    pub binds_low: bool,
    /// Memory that the agent and its Envoys may use, in bytes.
    pub memory: u64,
    /// Configured heap limit of each Envoy in bytes, or `None` for the default.
    pub heap: Option<u64>,
    /// Task limit of the agent's control group, and its current number of tasks. `None` if
    /// unlimited.
    pub tasks: Option<(u64, u64)>,
    /// Number of CPU cores.
    pub cores: usize,
    /// Limit on open files per process.
    pub open_files: u64,
    /// State of the clock.
    pub clock: ClockFacts,
    /// File systems that contain the state directory and the runtime directory.
    pub disks: Vec<DiskFacts>,
    /// Missing directories, each with the ID of the user to whom it should belong.
    pub missing: Vec<(PathBuf, u32)>,
    /// Sesame's files and directories with the wrong owner or mode.
    pub misplaced: Vec<PathFacts>,
    /// The Envoy binary, or why it cannot be used.
    pub envoy: Result<EnvoyFacts, String>,
    /// True if `net.ipv4.tcp_migrate_req` is set. `None` if the kernel does not have this setting.
    pub migrates: Option<bool>,
    /// An error if the kernel cannot steer new connections between two Envoys.
    pub steering: Result<(), String>,
    /// The user who owns the state directory, if this process is root and the owner is not. Then
    /// only the owner can check the cluster and the steering of connections.
    pub left_to: Option<String>,
    /// State of the cluster, or `None` if no cluster is configured or it was not checked.
    pub cluster: Option<ClusterFacts>,
    /// Warnings about certificates that have expired or expire soon. The flag is true if clients
    /// already reject the certificate.
    pub certificates: Vec<(bool, String)>,
    /// Number of certificates that are served.
    pub certificate_count: usize,
    /// The active mandatory access control system (SELinux or AppArmor) and its mode or profile.
    pub confinement: Option<String>,
    /// State of the systemd units. `None` if the host does not run systemd.
    pub units: Option<Vec<UnitFacts>>,
}

/// State of the agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// Process ID of the agent. `None` if no agent is running, or if the ID is unknown.
    pub pid: Option<u32>,
    /// Why the agent could not be queried. `None` if it responded, or if no agent is running.
    pub silent: Option<String>,
    /// Problems that the agent reports.
    pub reasons: Vec<String>,
    /// Upcoming problems about which the agent warns.
    pub warnings: Vec<String>,
}

/// Limits on the number of watched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct InotifyFacts {
    /// Maximum number of inotify instances per user.
    pub instances: usize,
    /// Number of instances that each Envoy can use while two Envoys are running.
    pub each: usize,
    /// Number of instances that an Envoy needs if each resource is in its own file.
    pub wanted: usize,
    /// Number of instances that the running Envoys use now.
    pub used: usize,
    /// Number of instances that the running agent reserves for the next Envoys. `None` if no agent
    /// is running.
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
    /// Address to which Envoy binds the socket.
    pub address: IpAddr,
    /// Port to which Envoy binds the socket.
    pub port: u16,
    /// ID and name of the process that holds the port. `None` if the port is free, or if the
    /// process is not visible.
    pub owner: Option<(u32, String)>,
    /// True if the process that holds the port is one of this host's Envoys.
    pub own: bool,
    /// True if a socket can be bound to the port now.
    pub bindable: bool,
}

/// State of the clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// The current time.
    pub now: Timestamp,
    /// True if the clock is synchronized, or `None` if unknown.
    pub synchronized: Option<bool>,
    /// Most recent time at which a configuration was accepted.
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
    /// Number of free inodes. `None` if the file system has no fixed number of inodes.
    pub inodes: Option<u64>,
    /// True if the file system is in memory, such as tmpfs.
    pub in_memory: bool,
}

/// A file or directory with the wrong owner or mode.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Path of the file or directory.
    pub path: PathBuf,
    /// User ID of the actual owner.
    pub owner: u32,
    /// User ID of the expected owner.
    pub wanted_owner: u32,
    /// Actual mode.
    pub mode: u32,
    /// Permission bits that the mode may have.
    pub wanted_mode: u32,
}

/// The Envoy binary.
#[derive(Clone, Debug)]
pub struct EnvoyFacts {
    /// Path of the binary.
    pub path: PathBuf,
    /// Version of the binary.
    pub version: String,
    /// Version of the hot restart protocol, or why Envoy does not report one.
    pub hot_restart: Result<String, String>,
    /// An error if shared memory for hot restarts cannot be created.
    pub shared_memory: Result<(), String>,
}

/// The API server as seen from this host.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// Why the API server cannot be reached. `None` if it can.
    pub unreachable: Option<String>,
    /// Version of the API server.
    pub version: String,
    /// Missing permissions, such as `list configmaps in sesame-system`.
    pub denied: Vec<String>,
    /// Why the permissions could not be checked. `None` if they were checked.
    pub unknown: Option<String>,
}

/// State of a systemd unit.
#[derive(Clone, Debug)]
pub struct UnitFacts {
    /// Name of the unit.
    pub name: String,
    /// Enablement state, such as `enabled` or `disabled`. Empty if the unit does not exist.
    pub file_state: String,
    /// Active state, such as `active` or `failed`.
    pub active_state: String,
}
