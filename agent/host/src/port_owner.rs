//! Finds the process that owns a port, if its descriptors are readable.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use sesame_proto::schema::Transport;

use super::listening;

/// A process that owns a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOwner {
    /// Process ID.
    pub pid: u32,
    /// Command name, which the kernel truncates to 15 characters.
    pub name: String,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Reads all of `/proc`, which takes a few milliseconds per thousand processes.
pub fn find(transport: Transport, address: IpAddr, port: u16) -> Option<PortOwner> {
    let tables = match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let inodes: Vec<u64> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(Path::new("/proc/net").join(table)).ok())
        .flat_map(|text| inodes(&text, transport, address, port))
        .collect();
    owner(&inodes)
}

/// An unspecified address on either side matches every address.
fn inodes(text: &str, transport: Transport, address: IpAddr, port: u16) -> Vec<u64> {
    let state = match transport {
        Transport::Tcp => "0A",
        Transport::Udp => "07",
    };
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let (its_state, socket) = listening::socket(line)?;
            let ip = socket.address.ip();
            let held = its_state == state
                && socket.address.port() == port
                && (ip == address || ip.is_unspecified() || address.is_unspecified());
            held.then_some(socket.inode)
        })
        .collect()
}

fn owner(inodes: &[u64]) -> Option<PortOwner> {
    if inodes.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let held = listening::held(pid);
        let holds = inodes.iter().any(|inode| held.contains_key(inode));
        holds.then(|| PortOwner {
            pid,
            name: fs::read_to_string(process.path().join("comm"))
                .unwrap_or_default()
                .trim()
                .to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[cfg(target_endian = "little")]
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:8888 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
   3: nonsense
";

    #[cfg(target_endian = "little")]
    #[test]
    fn listening_sockets_are_found_by_address_or_wildcard() {
        let at = |address: [u8; 4], port| inodes(TABLE, Transport::Tcp, address.into(), port);
        assert_eq!(at([127, 0, 0, 1], 8080), [4711]);
        assert_eq!(at([0, 0, 0, 0], 8080), [4711]);
        assert_eq!(at([127, 0, 0, 2], 8080), Vec::<u64>::new());
        assert_eq!(at([192, 0, 2, 1], 80), [4712]);
    }

    #[test]
    fn this_process_holds_its_own_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let owner = find(Transport::Tcp, Ipv4Addr::LOCALHOST.into(), port).unwrap();
        assert_eq!(owner.pid, std::process::id());
    }
}
