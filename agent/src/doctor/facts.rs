//! Facts about a host: values.

use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_proto::schema::Transport;

/// Everything that is known of a host.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Settings file, and everything that is wrong with it.
    pub settings: (Option<PathBuf>, Vec<String>),
    /// The agent.
    pub agent: AgentFacts,
    /// Limits on watched files.
    pub inotify: InotifyFacts,
    /// Sockets that the configuration asks for.
    pub ports: Vec<PortFacts>,
    /// First port that every process may open.
    pub first_free_port: u16,
    /// True if whoever runs the agent may open lower ones.
    pub binds_low: bool,
    /// Bytes of memory that may be used.
    pub memory: u64,
    /// Heap limit of each Envoy in bytes, where the settings say so.
    pub heap: Option<u64>,
    /// Most tasks of the control group, and those that it has.
    pub tasks: Option<(u64, u64)>,
    /// Number of cores.
    pub cores: usize,
    /// Most open files of the agent and its Envoys.
    pub open_files: u64,
    /// The clock.
    pub clock: ClockFacts,
    /// File systems of the state and of the runtime directory.
    pub disks: Vec<DiskFacts>,
    /// Directories that are missing, and the user that they are for.
    pub missing: Vec<(PathBuf, u32)>,
    /// Files and directories of Sesame whose owner or mode is wrong.
    pub misplaced: Vec<PathFacts>,
    /// The Envoy, or why there is none.
    pub envoy: Result<EnvoyFacts, String>,
    /// True if `net.ipv4.tcp_migrate_req` is set; none on a kernel without it.
    pub migrates: Option<bool>,
    /// Reason for which new connections cannot be steered between two Envoys.
    pub steering: Result<(), String>,
    /// The sysctl file of the package, where it is installed.
    pub sysctl_file: Option<PathBuf>,
    /// The cluster, where the settings name one.
    pub cluster: Option<ClusterFacts>,
    /// Certificates that expire soon, as sentences; true for those that clients refuse.
    pub certificates: Vec<(bool, String)>,
    /// Number of certificates that are served.
    pub certificate_count: usize,
    /// SELinux or AppArmor, in words.
    pub confinement: Option<String>,
    /// Units of systemd, where that is in charge of the host.
    pub units: Option<Vec<UnitFacts>>,
}

/// The running agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// Process number; none if none runs.
    pub pid: Option<u32>,
    /// Reason for which it did not answer.
    pub silent: Option<String>,
    /// Everything that it says is wrong.
    pub reasons: Vec<String>,
    /// Faults that are to come.
    pub warnings: Vec<String>,
}

/// Limits on watched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct InotifyFacts {
    /// Instances that the user may have.
    pub instances: usize,
    /// Instances that each of two Envoys may have.
    pub each: usize,
    /// Instances that an Envoy needs for everything to be a file of its own.
    pub wanted: usize,
    /// Files that the user may watch.
    pub watches: usize,
}

/// A socket that the configuration asks for.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// Gateway that has the listener.
    pub gateway: String,
    /// Protocol.
    pub transport: Transport,
    /// Address that is bound.
    pub address: IpAddr,
    /// Port that is bound.
    pub port: u16,
    /// Process that has it, where it can be seen.
    pub owner: Option<(u32, String)>,
    /// True if that is an Envoy of this host.
    pub own: bool,
    /// True if it can be bound beside what is there.
    pub bindable: bool,
}

/// The clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockFacts {
    /// The time.
    pub now: Timestamp,
    /// True if it is synchronised; none where nothing tells.
    pub synchronized: Option<bool>,
    /// Time at which a configuration was accepted last.
    pub last_accepted: Option<Timestamp>,
}

/// A file system.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Option that names the directory.
    pub option: &'static str,
    /// Directory.
    pub path: PathBuf,
    /// Free bytes.
    pub free: u64,
    /// Free inodes; none where the file system has no number of them.
    pub inodes: Option<u64>,
    /// True if it is in memory.
    pub in_memory: bool,
}

/// A file or directory.
#[derive(Clone, Debug)]
pub struct PathFacts {
    /// Path.
    pub path: PathBuf,
    /// Its owner.
    pub owner: u32,
    /// The owner that it should have.
    pub wanted_owner: u32,
    /// Its mode.
    pub mode: u32,
    /// The permissions that it may have at most.
    pub wanted_mode: u32,
}

/// An Envoy binary.
#[derive(Clone, Debug)]
pub struct EnvoyFacts {
    /// Path of the binary.
    pub path: PathBuf,
    /// Version.
    pub version: String,
    /// Protocol of hot restarts, or why there is none.
    pub hot_restart: Result<String, String>,
    /// Reason for which there is no shared memory for it.
    pub shared_memory: Result<(), String>,
}

/// The API server, as this host sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFacts {
    /// Reason for which it cannot be reached.
    pub unreachable: Option<String>,
    /// Version.
    pub version: String,
    /// Rights that are missing, as `list configmaps in sesame-system`.
    pub denied: Vec<String>,
    /// Reason for which rights cannot be told.
    pub unknown: Option<String>,
}

/// A unit of systemd.
#[derive(Clone, Debug)]
pub struct UnitFacts {
    /// Name of the unit.
    pub name: String,
    /// `enabled`, `disabled`, …; empty if there is no such unit.
    pub file_state: String,
    /// `active`, `failed`, …
    pub active_state: String,
}
