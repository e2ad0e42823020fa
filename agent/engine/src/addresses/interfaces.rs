//! Finds the interfaces that lead to other hosts: hardware interfaces (real or virtual), interfaces
//! stacked on them, and interfaces with a default route.
//!
//! Clients cannot reach a node's addresses on container bridges, tunnels, or the host ends of Pod
//! links. Non-loopback addresses on `lo` count, because operators assign them for clients.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MAX_DEPTH: usize = 4;
const UP: u32 = 1;

pub(super) struct Interfaces {
    sys: PathBuf,
    default: BTreeSet<String>,
}

impl Interfaces {
    /// Unreadable files count as empty.
    pub(super) fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            sys: PathBuf::from("/sys/class/net"),
            default: default_routes(&text("/proc/net/route"), &text("/proc/net/ipv6_route")),
        }
    }

    pub(super) fn lead_outside(&self, name: &str) -> bool {
        name == "lo" || self.default.contains(name) || stands_on_hardware(&self.sys.join(name), 0)
    }
}

fn stands_on_hardware(interface: &Path, depth: usize) -> bool {
    if interface.join("device").exists() {
        return true;
    }
    let below = std::fs::read_dir(interface).into_iter().flatten().flatten();
    depth < MAX_DEPTH
        && below
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
            .any(|entry| stands_on_hardware(&entry.path(), depth + 1))
}

fn default_routes(v4: &str, v6: &str) -> BTreeSet<String> {
    let v4 = v4.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, to, _, flags, _, _, _, mask, ..] = fields[..] else {
            return None;
        };
        let up = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP != 0);
        (up && to == "00000000" && mask == "00000000").then(|| name.to_owned())
    });
    let v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [to, bits, .., flags, name] = fields[..] else {
            return None;
        };
        let up = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP != 0);
        (up && bits == "00" && to.bytes().all(|digit| digit == b'0')).then(|| name.to_owned())
    });
    v4.chain(v6).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn hardware_leads_outside_and_container_bridges_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let sys = directory.path();
        for name in [
            "eth0/device",
            "bond0",
            "bond0.7",
            "br0",
            "cni0/bridge",
            "veth1",
            "flannel.1",
            "tun0",
        ] {
            create_dir_all(sys.join(name)).unwrap();
        }
        for (upper, lower) in [
            ("bond0", "eth0"),
            ("bond0.7", "bond0"),
            ("br0", "eth0"),
            ("br0", "veth1"),
            ("cni0", "veth1"),
        ] {
            symlink(
                sys.join(lower),
                sys.join(upper).join(format!("lower_{lower}")),
            )
            .unwrap();
        }
        // The search must terminate even if the kernel reports a cycle.
        symlink(sys.join("veth1"), sys.join("veth1/lower_veth1")).unwrap();
        let interfaces = Interfaces {
            sys: sys.to_owned(),
            default: BTreeSet::from(["tun0".to_owned()]),
        };
        for name in ["lo", "eth0", "bond0", "bond0.7", "br0", "tun0"] {
            assert!(interfaces.lead_outside(name), "{name}");
        }
        for name in ["cni0", "veth1", "flannel.1", "gone"] {
            assert!(!interfaces.lead_outside(name), "{name}");
        }
    }

    #[test]
    fn default_routes_are_found_in_kernel_tables() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            cni0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            down0\t00000000\t00000000\t0000\t0\t0\t0\t00000000\t0\t0\t0\n";
        let zero = "0".repeat(32);
        let v6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth1\n\
             fe800000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 cni0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
        );
        let found = default_routes(v4, &v6);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["eth0", "eth1"]);
    }
}
