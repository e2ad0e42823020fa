//! Gathers facts about the host.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sesame_proto::schema::Transport;

use super::facts::{
    AgentFacts, ClockFacts, ClusterFacts, DiskFacts, EnvoyFacts, HostFacts, InotifyFacts, PortFacts,
};
use super::{paths, systemd};
use sesame_engine::inspect::{InspectedGateway, envoys};
use sesame_envoy::process::shared_memory;
use sesame_envoy::{locate, restart};
use sesame_host::inotify::Budget;
use sesame_host::is_in_memory;
use sesame_host::{can_bind, limits, listening, port_owner};

#[derive(Clone, Debug)]
pub(crate) struct GatherInputs {
    pub(crate) settings: (Option<PathBuf>, Vec<String>),
    pub(crate) state_dir: PathBuf,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) envoy: Option<PathBuf>,
    /// Heap limit for each Envoy in bytes, or `None` for the default.
    pub(crate) heap: Option<u64>,
    /// Listener port → port that Envoy binds.
    pub(crate) port_map: BTreeMap<u32, u32>,
    /// If empty, Envoy listens on all addresses.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) gateways: Vec<InspectedGateway>,
    pub(crate) agent: AgentFacts,
    pub(crate) cluster: Option<ClusterFacts>,
    /// Owner of the state directory, if this process is root and the owner is not.
    pub(crate) unprivileged_owner: Option<String>,
}

/// Takes a few milliseconds, plus the time for Envoy to print its version.
pub(crate) async fn gather(inputs: GatherInputs) -> HostFacts {
    let GatherInputs {
        settings,
        state_dir,
        runtime_dir,
        envoy,
        heap,
        port_map,
        addresses,
        gateways,
        agent,
        cluster,
        unprivileged_owner,
    } = inputs;
    let own = envoys(&runtime_dir, None);
    let process = agent
        .pid
        .map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let unit = systemd::service(agent.pid.is_none());
    let user = running_as(agent.pid)
        .or_else(|| unit.as_ref().and_then(|unit| unit.user))
        .unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let first_free_port = number("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or(1024);
    let given_by_unit = unit.as_ref().is_some_and(|unit| unit.binds_low);
    let binds_here = may_bind_low("self");
    let now = Timestamp::now();
    let ports = ports(&gateways, &port_map, &addresses, (user, &own), |port| {
        port < first_free_port && !binds_here
    });
    let (missing, misplaced) = paths::judge(&[&state_dir, &runtime_dir], user);
    let expiries = || gateways.iter().flat_map(|gateway| &gateway.expiries);
    HostFacts {
        settings,
        inotify: inotify(user, &own, agent.pid, &gateways),
        ports,
        first_free_port,
        binds_low: given_by_unit || may_bind_low(&process),
        memory: limits::memory_of(&process),
        heap,
        tasks: limits::tasks_of(&process),
        cores: std::thread::available_parallelism().map_or(1, Into::into),
        open_files: open_files(&process).unwrap_or_else(limits::open_files),
        clock: clock(now, &gateways),
        disks: [("state-dir", &state_dir), ("runtime-dir", &runtime_dir)]
            .into_iter()
            .filter_map(|(option, path)| disk(option, path))
            .collect(),
        missing,
        misplaced,
        envoy: envoy_facts(envoy.as_deref()).await,
        migrates: moves_connections(),
        steering: restart::can_steer()
            .map_err(|error| format!("connections cannot be steered: {error}")),
        unprivileged_owner,
        cluster,
        certificates: expiries()
            .filter_map(|expiry| expiry.warning(now))
            .map(|warning| (warning.refused, warning.message))
            .collect(),
        certificate_count: expiries().count(),
        confinement: confinement(),
        units: systemd::units(),
        agent,
    }
}

fn running_as(pid: Option<u32>) -> Option<u32> {
    let process = fs::metadata(format!("/proc/{}", pid?)).ok()?;
    Some(process.uid())
}

fn clock(now: Timestamp, gateways: &[InspectedGateway]) -> ClockFacts {
    ClockFacts {
        now,
        synchronized: systemd::clock_is_synchronized(),
        last_accepted: gateways
            .iter()
            .filter_map(|gateway| gateway.accepted_at)
            .max(),
    }
}

/// Returns `None` if the kernel lacks this feature.
fn moves_connections() -> Option<bool> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").ok()?;
    Some(text.trim() == "1")
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn inotify(
    user: u32,
    own: &[u32],
    agent: Option<u32>,
    gateways: &[InspectedGateway],
) -> InotifyFacts {
    let budget = Budget::of(user, own, agent);
    let wanted = gateways.iter().map(|gateway| gateway.files).sum();
    InotifyFacts {
        instances: budget.limit,
        each: budget.subscriptions(2),
        wanted,
        used: budget.own,
        held: agent.map(|_| budget.held),
        watches: number("/proc/sys/fs/inotify/max_user_watches").unwrap_or(usize::MAX),
    }
}

fn may_bind_low(process: &str) -> bool {
    const BIND_SERVICE: u64 = 1 << 10;
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities & BIND_SERVICE != 0)
}

fn open_files(process: &str) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// `denied` returns true for a port that this process may not bind.
fn ports(
    gateways: &[InspectedGateway],
    port_map: &BTreeMap<u32, u32>,
    addresses: &[IpAddr],
    (user, own): (u32, &[u32]),
    denied: impl Fn(u16) -> bool,
) -> Vec<PortFacts> {
    let everywhere = [IpAddr::from([0, 0, 0, 0])];
    let listening = listening::all(std::process::id());
    let mut ports = Vec::new();
    for gateway in gateways {
        let at = match (gateway.addresses.as_slice(), addresses) {
            ([], []) => &everywhere[..],
            ([], set) => set,
            (served, _) => served,
        };
        for ((transport, outside), opened) in &gateway.ports {
            let bound = port_map.get(outside).unwrap_or(opened);
            let Ok(port) = u16::try_from(*bound) else {
                continue;
            };
            for address in at {
                let owner = port_owner::find(*transport, *address, port);
                let mut there = listening.iter().filter(|socket| {
                    socket.address.port() == port
                        && (socket.address.ip() == *address || socket.address.ip().is_unspecified())
                });
                let first = there.next();
                let taken = first.is_some();
                // Only root can see the open files of a process with capabilities.
                let hidden = owner.is_none() && !own.is_empty();
                let ours = first.is_some_and(|socket| socket.user == user);
                let bindable = if denied(port) {
                    *transport == Transport::Udp || !taken
                } else {
                    can_bind(*transport, (*address, port).into())
                };
                ports.push(PortFacts {
                    gateway: gateway.gateway.to_string(),
                    transport: *transport,
                    address: *address,
                    port,
                    own: owner.as_ref().is_some_and(|owner| own.contains(&owner.pid))
                        || (hidden && ours),
                    owner: owner.map(|owner| (owner.pid, owner.name)),
                    bindable,
                });
            }
        }
    }
    ports
}

fn disk(option: &'static str, path: &Path) -> Option<DiskFacts> {
    // A missing directory will be created on the file system of its nearest existing ancestor.
    let there = path.ancestors().find(|path| path.is_dir())?;
    let room = rustix::fs::statvfs(there).ok()?;
    Some(DiskFacts {
        option,
        path: path.to_owned(),
        free: room.f_bavail.saturating_mul(room.f_frsize),
        inodes: (room.f_files > 0).then_some(room.f_favail),
        in_memory: is_in_memory(there),
    })
}

async fn envoy_facts(named: Option<&Path>) -> Result<EnvoyFacts, String> {
    let path = locate::locate(named).map_err(|error| error.to_string())?;
    let version = locate::version(&path)
        .await
        .map_err(|error| error.to_string())?;
    Ok(EnvoyFacts {
        version: version.to_string(),
        hot_restart: restart::protocol_of(&path).await,
        shared_memory: shared_memory::is_usable()
            .map_err(|error| format!("no shared memory for hot restarts: {error}")),
        path,
    })
}

fn confinement() -> Option<String> {
    let text = |path| fs::read_to_string(path).ok();
    if let Some(mode) = text("/sys/fs/selinux/enforce") {
        let mode = if mode.trim() == "1" {
            "enforcing"
        } else {
            "permissive"
        };
        let context = text("/proc/self/attr/current").unwrap_or_default();
        return Some(format!(
            "SELinux is {mode} ({})",
            context.trim_end_matches('\0').trim()
        ));
    }
    let enabled = text("/sys/module/apparmor/parameters/enabled")?;
    let profile = text("/proc/self/attr/current").unwrap_or_default();
    (enabled.trim() == "Y")
        .then(|| format!("AppArmor is on ({})", profile.trim_end_matches('\0').trim()))
}
