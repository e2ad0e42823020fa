//! The ports that this host binds instead of the listeners' ports.
//!
//! A port is either configured or chosen by the agent. Chosen ports are stored in the state
//! directory, because clients and firewall rules depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::Path;

use sesame_files::open;
use sesame_proto::schema::Transport;

use super::{can_bind, durable, written_by_agent};

/// Name of the file with the chosen ports, in the state directory.
const FILE: &str = "free-ports.json";
/// Maximum size of that file in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Ports to choose from, below Linux's default range for outgoing connections.
const RANGE: std::ops::RangeInclusive<u16> = 10_000..=32_767;

/// The port that a host binds for a listener's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundPort {
    /// A configured port.
    Fixed(u32),
    /// A free port that the agent chooses on its first start.
    Free,
}

/// The ports to bind, by the port that clients use.
pub type PortMap = BTreeMap<u32, BoundPort>;

/// Returns the ports to bind, with a free port for each [`BoundPort::Free`]. A port that was chosen
/// before is kept unless another program has bound it.
pub fn assign(map: &PortMap, state_dir: &Path) -> io::Result<BTreeMap<u32, u32>> {
    let stored = stored(state_dir);
    let mut taken: BTreeSet<u32> = fixed(map).into_values().collect();
    let mut chosen = BTreeMap::new();
    for (outside, _) in map.iter().filter(|(_, bound)| **bound == BoundPort::Free) {
        let kept = stored.get(outside).copied();
        let kept = kept.filter(|port| !taken.contains(&u32::from(*port)) && is_ours(*port));
        let port = match kept {
            Some(port) => port,
            None => choose(*outside, &taken)?,
        };
        taken.insert(port.into());
        chosen.insert(*outside, port);
    }
    if chosen != stored {
        let bytes = serde_json::to_vec(&chosen)?;
        durable::replace_file(&state_dir.join(FILE), &bytes)?;
    }
    Ok(known(map, &chosen))
}

/// Returns the ports that are configured or were chosen before. Never chooses a port.
pub fn assigned(map: &PortMap, state_dir: &Path) -> BTreeMap<u32, u32> {
    known(map, &stored(state_dir))
}

/// Returns only the configured ports.
pub fn fixed(map: &PortMap) -> BTreeMap<u32, u32> {
    known(map, &BTreeMap::new())
}

fn known(map: &PortMap, chosen: &BTreeMap<u32, u16>) -> BTreeMap<u32, u32> {
    let pairs = map.iter().filter_map(|(outside, bound)| match bound {
        BoundPort::Fixed(port) => Some((*outside, *port)),
        BoundPort::Free => Some((*outside, (*chosen.get(outside)?).into())),
    });
    pairs.collect()
}

/// Reads the stored ports. An unreadable file counts as empty, because new ports can be chosen.
fn stored(state_dir: &Path) -> BTreeMap<u32, u16> {
    let path = state_dir.join(FILE);
    let bytes = match open::read(&path, written_by_agent(), MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return BTreeMap::new(),
        Err(error) => {
            tracing::warn!("chosen ports cannot be read, so free ports are chosen again: {error}");
            return BTreeMap::new();
        }
    };
    let ports: BTreeMap<u32, u16> = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        let path = path.display();
        tracing::warn!("{path} is damaged ({error}), so free ports are chosen again");
        BTreeMap::new()
    });
    let valid = ports.into_iter().filter(|(_, port)| RANGE.contains(port));
    valid.collect()
}

/// Returns the first free port from 10,000 above `outside`, wrapping around at the end of the
/// range.
fn choose(outside: u32, taken: &BTreeSet<u32>) -> io::Result<u16> {
    let (first, last) = (*RANGE.start(), *RANGE.end());
    let length = usize::from(last - first) + 1;
    let start = usize::try_from(outside).unwrap_or_default() % length;
    let mut candidates = RANGE.cycle().skip(start).take(length);
    let free = candidates.find(|port| !taken.contains(&u32::from(*port)) && is_free(*port));
    let port = free.ok_or_else(|| {
        io::Error::other(format!(
            "no port from {first} to {last} is free for port {outside}; configure one with --port-map"
        ))
    })?;
    tracing::info!(outside, bound = port, "chose a free port");
    Ok(port)
}

/// Returns true if no TCP or UDP socket is bound to the port at any address.
fn is_free(port: u16) -> bool {
    let any = (Ipv4Addr::UNSPECIFIED, port);
    // On a host without IPv6, binding fails with another error, which is not a conflict.
    let any6 = (Ipv6Addr::UNSPECIFIED, port);
    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    TcpListener::bind(any).is_ok()
        && UdpSocket::bind(any).is_ok()
        && !TcpListener::bind(any6).is_err_and(|error| in_use(&error))
        && !UdpSocket::bind(any6).is_err_and(|error| in_use(&error))
}

/// Returns true if the port is free or an Envoy of this user holds it with `SO_REUSEPORT`.
fn is_ours(port: u16) -> bool {
    let address = (Ipv4Addr::UNSPECIFIED, port).into();
    can_bind(Transport::Tcp, address) && can_bind(Transport::Udp, address)
}

#[cfg(test)]
mod tests {
    use super::{BoundPort, FILE, PortMap, assign, assigned};

    /// Uses ports that no other test binds.
    fn map(first: u32) -> PortMap {
        let free = [first, first + 1000].map(|outside| (outside, BoundPort::Free));
        free.into_iter()
            .chain([(80, BoundPort::Fixed(8080))])
            .collect()
    }

    #[test]
    fn chosen_ports_are_kept_until_taken() {
        let (map, directory) = (map(443), tempfile::tempdir().unwrap());
        assert_eq!(assigned(&map, directory.path()), [(80, 8080)].into());
        let first = assign(&map, directory.path()).unwrap();
        assert_eq!(first[&80], 8080);
        assert_ne!(first[&443], first[&1443]);
        assert_eq!(assign(&map, directory.path()).unwrap(), first);
        assert_eq!(assigned(&map, directory.path()), first);

        let taken = u16::try_from(first[&443]).unwrap();
        let _other = std::net::TcpListener::bind(("0.0.0.0", taken)).unwrap();
        let second = assign(&map, directory.path()).unwrap();
        assert_ne!(second[&443], first[&443]);
        assert_eq!(second[&1443], first[&1443]);
    }

    #[test]
    fn damaged_file_is_replaced() {
        let (map, directory) = (map(444), tempfile::tempdir().unwrap());
        let path = directory.path().join(FILE);
        for content in ["{", r#"{"444":80}"#, r#"{"444":70000}"#] {
            std::fs::write(&path, content).unwrap();
            let ports = assign(&map, directory.path()).unwrap();
            assert!(
                (10_000..32_768).contains(&ports[&444]),
                "{content}: {ports:?}"
            );
            assert_eq!(assigned(&map, directory.path()), ports);
        }
    }
}
