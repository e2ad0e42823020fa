//! Lists listening sockets and their waiting connections from `/proc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};

const LISTEN: &str = "0A";
/// State of UDP sockets without a peer.
const UNCONNECTED: &str = "07";

/// Listening TCP socket, or UDP socket without a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Local address. IPv4-mapped addresses are converted to IPv4.
    pub address: SocketAddr,
    /// User ID of the socket's owner.
    pub user: u32,
    /// Inode number of the socket, as in [`held`].
    pub inode: u64,
    /// Length of the accept queue; for UDP, bytes in the receive queue.
    pub waiting: u32,
}

/// Returns the process's listening TCP sockets. Empty if `/proc` is unreadable.
pub fn for_process(pid: u32) -> impl Iterator<Item = Listening> {
    let held = held(pid);
    let all = all(pid).into_iter();
    all.filter(move |socket| held.contains_key(&socket.inode))
}

/// Returns the listening TCP sockets in the process's network namespace.
/// Empty if `/proc` is unreadable.
pub fn all(pid: u32) -> Vec<Listening> {
    let tables = ["tcp", "tcp6"].into_iter();
    // The kernel lists listening sockets first. Stop after them, because a hundred thousand
    // connections may follow.
    let listening = |table| rows(pid, table).map_while(|row| in_state(&row, LISTEN));
    tables.flat_map(listening).collect()
}

/// Returns UDP sockets without a peer. Sockets at one address are in the order in which they were
/// bound.
pub fn datagrams(pid: u32) -> Vec<Listening> {
    let tables = ["udp", "udp6"].into_iter();
    let unconnected = |table| rows(pid, table).filter_map(|row| in_state(&row, UNCONNECTED));
    let mut sockets: Vec<Listening> = tables.flat_map(unconnected).collect();
    // The kernel lists the newest first.
    sockets.reverse();
    sockets
}

fn rows(pid: u32, table: &str) -> impl Iterator<Item = String> + use<> {
    let table = File::open(format!("/proc/{pid}/net/{table}")).into_iter();
    table.flat_map(|table| BufReader::new(table).lines().map_while(Result::ok).skip(1))
}

/// Maps each socket's inode number to one of the process's descriptors for that socket.
pub fn held(pid: u32) -> BTreeMap<u64, i32> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    descriptors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let number = target.to_str()?.strip_prefix("socket:[")?;
            let inode = number.strip_suffix(']')?.parse().ok()?;
            Some((inode, entry.file_name().to_str()?.parse().ok()?))
        })
        .collect()
}

fn in_state(row: &str, expected: &str) -> Option<Listening> {
    let (state, socket) = socket(row)?;
    (state == expected).then_some(socket)
}

/// The socket need not be listening.
pub(super) fn socket(line: &str) -> Option<(&str, Listening)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, state, queues, _, _, user, _, inode, ..] = fields.as_slice() else {
        return None;
    };
    let (address, port) = local.split_once(':')?;
    let (_, waiting) = queues.split_once(':')?;
    let socket = Listening {
        address: SocketAddr::new(parse_address(address)?, u16::from_str_radix(port, 16).ok()?),
        user: user.parse().ok()?,
        inode: inode.parse().ok()?,
        waiting: u32::from_str_radix(waiting, 16).ok()?,
    };
    Some((state, socket))
}

/// `/proc/net` shows hexadecimal words in host byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for word in hex.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(IpAddr::from(v4));
    }
    let v6 = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(IpAddr::from(v6).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    /// Test with another process's sockets, because other tests open sockets in this process.
    #[test]
    fn only_listening_sockets_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (socket, counts) in [(OwnedFd::from(listener), 1), (OwnedFd::from(client), 0)] {
            let mut command = Command::new("sleep");
            let mut process = command.arg("600").stdin(socket).spawn().unwrap();
            drop(command);
            let counted = for_process(process.id()).count();
            process.kill().unwrap();
            process.wait().unwrap();
            assert_eq!(counted, counts);
            assert_eq!(for_process(process.id()).count(), 0);
        }
    }

    #[test]
    fn connections_wait_until_accepted() {
        for address in [
            // No other test connects to this address.
            SocketAddr::from((Ipv4Addr::new(127, 83, 69, 84), 0)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        ] {
            let Ok(listener) = TcpListener::bind(address) else {
                assert!(address.is_ipv6(), "a host without IPv4");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let waiting = || {
                let all = all(std::process::id());
                let socket = all.iter().find(|socket| socket.address == address);
                socket.unwrap().waiting
            };
            assert_eq!(waiting(), 0);
            let _client = TcpStream::connect(address).unwrap();
            // Poll, because `connect` may return before the kernel has queued the connection for
            // `accept`.
            let deadline = Instant::now() + Duration::from_secs(30);
            while waiting() == 0 {
                assert!(Instant::now() < deadline, "no connection is waiting");
                std::thread::yield_now();
            }
            assert_eq!(waiting(), 1);
            listener.accept().unwrap();
            assert_eq!(waiting(), 0);
        }
    }
}
