//! Whether a process still takes connections, as the kernel sees it: the only proof that a first Envoy has not given
//! its sockets away.

use std::collections::BTreeSet;
use std::fs;

/// The state LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// How many TCP sockets a process listens on.
pub(crate) fn count(pid: u32) -> usize {
    let listening: BTreeSet<u64> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|text| text.lines().filter_map(inode).collect::<Vec<_>>())
        .collect();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let sockets: BTreeSet<u64> = descriptors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let number = target.to_str()?.strip_prefix("socket:[")?;
            number.strip_suffix(']')?.parse().ok()
        })
        .collect();
    sockets.intersection(&listening).count()
}

/// The inode of a line of `/proc/net/tcp` whose socket listens.
fn inode(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [_, _, _, state, _, _, _, _, _, inode, ..] if *state == LISTEN => inode.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn an_open_port_counts_and_a_closed_one_does_not() {
        let own = std::process::id();
        let before = count(own);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(count(own), before + 1);
        drop(listener);
        assert_eq!(count(own), before);
    }
}
