//! Checks ports, and kernel settings for connections.

use crate::doctor::facts::{HostFacts, PortFacts};
use crate::doctor::{FindingSeverity, HostFinding};

pub(super) fn ports(facts: &HostFacts) -> Vec<HostFinding> {
    let mut findings: Vec<HostFinding> = facts.ports.iter().filter_map(port).collect();
    if findings.is_empty() {
        let found = match facts.ports.len() {
            0 => "the configuration needs no ports yet".to_owned(),
            all => format!("{all} sockets are free, or held by this host's Envoys"),
        };
        findings.push(HostFinding::ok("ports", found));
    }
    findings
}

fn port(facts: &PortFacts) -> Option<HostFinding> {
    let PortFacts {
        gateway,
        transport,
        address,
        port,
        owner,
        own,
        bindable,
    } = facts;
    let socket = format!(
        "{} port {port} at {address} (Gateway {gateway})",
        transport.as_str_name()
    );
    let (found, remedy) = match owner {
        _ if *own => return None,
        Some((pid, name)) => (
            format!("{socket} is held by process {pid} ({name})"),
            format!(
                "stop it (`systemctl status {pid}` names its unit), or map the port with --port-map {port}:OTHER"
            ),
        ),
        None if *bindable => return None,
        None => (
            format!(
                "{socket} cannot be bound: it is held by a process that is not visible here, the address is not this host's, or this user lacks permission"
            ),
            format!("`ss -lptn sport = :{port}` and `ip address`, as root"),
        ),
    };
    Some(
        HostFinding::error("ports", found)
            .expected("a free port, or an Envoy of this host")
            .remedy(remedy),
    )
}

pub(super) fn low_ports(facts: &HostFacts) -> HostFinding {
    let first = facts.first_free_port;
    let low = facts
        .ports
        .iter()
        .map(|facts| facts.port)
        .find(|port| *port < first);
    let finding = |weight, found: String| HostFinding::new("low-ports", weight, found);
    match low {
        _ if facts.binds_low => finding(FindingSeverity::Ok, "all ports may be opened".to_owned()),
        None => finding(FindingSeverity::Ok, format!("ports from {first} may be opened, and no lower port is needed")),
        Some(port) => finding(FindingSeverity::Error, format!("port {port} is needed, but only ports from {first} may be opened"))
            .expected("CAP_NET_BIND_SERVICE, or a lower net.ipv4.ip_unprivileged_port_start")
            .remedy(format!("AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or `sysctl net.ipv4.ip_unprivileged_port_start={port}`")),
    }
}

/// Checks whether the kernel moves waiting connections from a closed socket to another socket on
/// the same port.
pub(super) fn migration(facts: &HostFacts) -> HostFinding {
    let finding = |weight, found| HostFinding::new("tcp-migrate-req", weight, found);
    match facts.migrates {
        Some(true) => finding(FindingSeverity::Ok, "net.ipv4.tcp_migrate_req is 1"),
        Some(false) => finding(FindingSeverity::Warning, "net.ipv4.tcp_migrate_req is 0")
            .expected(
                "1, so that connections wait for the next Envoy instead of being refused if Envoy dies",
            )
            .remedy("sysctl -w net.ipv4.tcp_migrate_req=1"),
        None => finding(FindingSeverity::Note, "the kernel lacks net.ipv4.tcp_migrate_req")
            .expected("Linux 5.14 or newer, which lets connections wait if Envoy dies"),
    }
}

/// Returns `None` if only the agent's user can check this.
pub(super) fn steering(facts: &HostFacts) -> Option<HostFinding> {
    if facts.unprivileged_owner.is_some() {
        return None;
    }
    Some(match &facts.steering {
        Ok(()) => HostFinding::ok("port-steering", "the kernel steers new connections"),
        Err(why) => HostFinding::warning("port-steering", why.clone())
            .expected("a kernel that accepts BPF programs for SO_REUSEPORT groups; without them, a handover may refuse a few connections")
            .remedy("Linux 4.5 or newer, and a sandbox that allows setsockopt(SO_ATTACH_REUSEPORT_CBPF)"),
    })
}
