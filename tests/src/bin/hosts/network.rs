//! A network between a scenario and its machine, without routes to other networks.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::inside::Inside;

/// Address of the peer that stands in for everything outside the machine.
pub(crate) const SITE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const DEVICE: &str = "site0";
const BRIDGE: &str = "site";

/// Returns true if this process has its own network namespace. Otherwise, runs the scenario in a
/// new process that has one, and returns false.
pub(crate) fn inside_own(scenario: &str) -> bool {
    if std::env::args().any(|argument| argument == "--own-network") {
        return true;
    }
    let script = format!(
        r#"ip link set lo up && ip link add {BRIDGE} type bridge && ip address add {SITE}/24 dev {BRIDGE} &&
        ip link set {BRIDGE} up && exec "$0" "$@""#
    );
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args([scenario, "--own-network"])
        .status()
        .expect("unshare (Debian: util-linux)");
    assert!(status.success(), "{scenario} in its own network: {status}");
    false
}

/// Disables IPv6, so that the kernel itself sends no packets.
pub(crate) fn attach(inside: &Inside) {
    let init = inside.init().to_string();
    let ours = format!("machine{init}");
    ip(&[
        "link", "add", &ours, "type", "veth", "peer", "name", DEVICE, "netns", &init,
    ]);
    ip(&["link", "set", &ours, "master", BRIDGE, "up"]);
    let script = format!(
        "echo 1 >/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6 && ip address add {HOST}/24 dev {DEVICE} &&
        ip link set {DEVICE} up && ip route add default via {SITE}"
    );
    run(Command::new("nsenter").args(["--target", &init, "--net", "sh", "-c", &script]));
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let status = command.status().expect("ip (Debian: iproute2)");
    assert!(status.success(), "{command:?}: {status}");
}
