//! Keeps HTTP/3 connections on the first Envoy in a handover, and gives new ones to the second.
//!
//! For each datagram, a BPF program chooses an index in the SO_REUSEPORT group. Envoy's own program
//! assumes that a worker's number is the index of its socket, and Envoy's workers reset connections
//! of other workers. When a socket closes, the last socket takes its index. So the agent copies the
//! first Envoy's sockets, and closes them after that Envoy has exited, in an order that gives the
//! second Envoy's sockets the indexes of their workers. While it closes them, a socket of the agent
//! drops all datagrams, so that no datagram reaches the wrong worker. Clients send them again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sesame_files::open;
use sesame_render::connection_ids::IdMark;
use socket2::{Domain, Socket, Type};

use super::reuseport::Choice;
use super::steer::{attach, bind_dropping, own, read_stable};
use crate::process::Process;
use crate::process::identity::RunningEnvoy;
use sesame_host::listening::{self, Listening};
use sesame_host::{durable, written_by_agent};

/// Identifies the Envoy whose sockets are in the order of its workers.
const ORDER_FILE: &str = "quic-order.json";
const MAX_ORDER_FILE: u64 = 64 << 10;

/// Groups of the first Envoy's HTTP/3 sockets, before the second Envoy joins them.
#[derive(Debug, Default)]
pub(crate) struct QuicSinks(BTreeMap<SocketAddr, QuicGroup>);

/// Must be finished once the first Envoy has exited.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct QuicSteering(BTreeMap<SocketAddr, QuicGroup>);

#[derive(Debug)]
struct QuicGroup {
    /// Drops all datagrams.
    sink: Socket,
    /// Copies of the first Envoy's sockets, in the order of its workers.
    copies: Vec<OwnedFd>,
    /// The mark of the first Envoy's connection IDs.
    mark: IdMark,
}

/// Content of [`ORDER_FILE`].
#[derive(Debug, Serialize, Deserialize)]
struct SocketOrder {
    pid: u32,
    start_time: u64,
    /// Addresses at which the order of the sockets is unknown.
    unknown: BTreeSet<SocketAddr>,
}

impl SocketOrder {
    fn read(directory: &Path, process: &Process) -> Option<Self> {
        let path = directory.join(ORDER_FILE);
        let bytes = open::read(&path, written_by_agent(), MAX_ORDER_FILE).ok()?;
        let order: Self = serde_json::from_slice(&bytes).ok()?;
        let is_of = (order.pid, order.start_time) == (process.pid(), process.start_time());
        is_of.then_some(order)
    }
}

/// Records that an Envoy's sockets are in the order of its workers, except at some addresses. This is
/// true if no other Envoy had sockets at its addresses when it started.
pub(crate) fn record_order(directory: &Path, process: &Process, unknown: BTreeSet<SocketAddr>) {
    let order = SocketOrder {
        pid: process.pid(),
        start_time: process.start_time(),
        unknown,
    };
    let written = serde_json::to_vec(&order)
        .map_err(io::Error::other)
        .and_then(|bytes| durable::replace_file(&directory.join(ORDER_FILE), &bytes));
    if let Err(error) = written {
        tracing::warn!(%error, "cannot record the order of sockets; the next handover will interrupt HTTP/3 connections");
    }
}

impl QuicSinks {
    /// Must be called before the second Envoy starts, because the sinks must have smaller indexes
    /// than its sockets.
    pub(crate) fn join(
        directory: &Path,
        before: &RunningEnvoy,
        addresses: &BTreeSet<SocketAddr>,
    ) -> Self {
        let process = &before.process;
        let mark = before.identity.id_mark.and_then(IdMark::of);
        // Without a mark, its program is not known either.
        let known = SocketOrder::read(directory, process).zip(mark);
        let all = datagrams(process.pid());
        let held = listening::held(process.pid());
        let mut groups = BTreeMap::new();
        for address in addresses {
            let joined = match &known {
                Some((order, mark)) if !order.unknown.contains(address) => {
                    QuicGroup::join(*address, *mark, (process, &held), &all)
                }
                _ => Err(io::Error::other("the order of its sockets is unknown")),
            };
            match joined {
                Ok(group) => {
                    groups.insert(*address, group);
                }
                Err(error) => report(*address, &error),
            }
        }
        Self(groups)
    }

    pub(crate) fn steer(self, after: &Process) -> QuicSteering {
        let all = datagrams(after.pid());
        let held = listening::held(after.pid());
        let mut groups = BTreeMap::new();
        for (address, group) in self.0 {
            match group.steer(&inodes(&all, address), &held) {
                Ok(group) => {
                    groups.insert(address, group);
                }
                Err(error) => report(address, &error),
            }
        }
        QuicSteering(groups)
    }
}

impl QuicSteering {
    /// Must be called after the first Envoy has exited. Lets the kernel choose by hash at addresses
    /// where the order of the second Envoy's sockets is unknown, so that all datagrams of a client
    /// reach the same worker.
    pub(crate) fn finish(self, directory: &Path, after: &Process) {
        let mut in_order = BTreeSet::new();
        for (address, group) in self.0 {
            match group.finish() {
                Ok(()) => {
                    in_order.insert(address);
                }
                Err(error) => report(address, &error),
            }
        }
        let held = listening::held(after.pid());
        let mut unknown = BTreeSet::new();
        for Listening { address, inode, .. } in datagrams(after.pid()) {
            if let Some(descriptor) = held.get(&inode)
                && !in_order.contains(&address)
                && unknown.insert(address)
                && let Err(error) = own(after, inode, *descriptor)
                    .and_then(|socket| attach(&socket, Choice::Any))
                    .or_else(|_| attach(&sink(address)?, Choice::Any))
            {
                // Fails for sockets that belong to no group, such as sockets for DNS requests.
                tracing::debug!(%address, %error, "cannot let the kernel choose sockets by hash");
            }
        }
        record_order(directory, after, unknown);
    }
}

fn datagrams(pid: u32) -> Vec<Listening> {
    read_stable(|| listening::datagrams(pid), |again, seen| again == seen)
}

fn report(address: SocketAddr, error: &io::Error) {
    tracing::warn!(%address, "the handover interrupts HTTP/3 connections: {error}");
}

/// Returns a group's sockets in the order of their indexes.
fn inodes(all: &[Listening], address: SocketAddr) -> Vec<u64> {
    let group = all.iter().filter(|it| it.address == address);
    group.map(|it| it.inode).collect()
}

impl QuicGroup {
    fn join(
        address: SocketAddr,
        mark: IdMark,
        (before, held): (&Process, &BTreeMap<u64, i32>),
        all: &[Listening],
    ) -> io::Result<Self> {
        let copy = |inode: u64| {
            let descriptor = held.get(&inode).ok_or_else(unknown)?;
            own(before, inode, *descriptor).map_err(|error| {
                let remedy = "give the agent CAP_SYS_PTRACE";
                io::Error::other(format!("cannot copy its sockets: {error}; {remedy}"))
            })
        };
        let copies = inodes(all, address).into_iter().map(copy);
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        let first = copies.first().ok_or_else(unknown)?;
        // An Envoy with one worker has no program, so the kernel would also choose the sink.
        attach(first, in_order(copies.len())?)?;
        let sink = sink(address)?;
        Ok(Self { sink, copies, mark })
    }

    /// `held` maps the inodes of the second Envoy to descriptors.
    fn steer(self, all: &[u64], held: &BTreeMap<u64, i32>) -> io::Result<Self> {
        let inode = |socket: BorrowedFd<'_>| Ok(rustix::fs::fstat(socket)?.st_ino);
        let sockets = self
            .copies
            .iter()
            .map(AsFd::as_fd)
            .chain([self.sink.as_fd()]);
        let first: Vec<u64> = sockets.map(inode).collect::<io::Result<_>>()?;
        let workers = self.copies.len();
        let is_known = all.len() == 2 * workers + 1
            && all[..=workers] == first
            && all[workers + 1..].iter().all(|it| held.contains_key(it));
        if !is_known {
            return Err(unknown());
        }
        let workers = u32::try_from(workers).map_err(io::Error::other)?;
        let choice = Choice::Worker {
            before: Some(self.mark),
            first: workers + 1,
            workers,
        };
        attach(&self.sink, choice)?;
        Ok(self)
    }

    fn finish(mut self) -> io::Result<()> {
        let workers = self.copies.len();
        let choice = Choice::Only(u32::try_from(workers).map_err(io::Error::other)?);
        attach(&self.sink, choice)?;
        // The last socket takes the index of each closed one, so begin with the last worker.
        while let Some(socket) = self.copies.pop() {
            drop(socket);
        }
        attach(&self.sink, in_order(workers)?)
        // The sink has the last index, so closing it changes no other.
    }
}

fn unknown() -> io::Error {
    io::Error::other(
        "both Envoys must have one socket for each worker, and no other process may have one",
    )
}

/// Like the program of an Envoy whose sockets have the first indexes.
fn in_order(workers: usize) -> io::Result<Choice> {
    Ok(Choice::Worker {
        before: None,
        first: 0,
        workers: u32::try_from(workers).map_err(io::Error::other)?,
    })
}

fn sink(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    bind_dropping(&socket, address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use sesame_render::connection_ids::ID_BYTES;

    use super::*;
    use crate::process::identity::Identity;
    use crate::restart::holder::Holder;

    const WORKERS: usize = 2;

    /// Holds the sockets of two workers. The test can read from them, too.
    struct Server {
        holder: Holder,
        sockets: Vec<UdpSocket>,
    }

    impl Server {
        fn start(address: SocketAddr) -> Self {
            let sockets = (0..WORKERS).map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
                socket.set_reuse_port(true).unwrap();
                socket.bind(&address.into()).unwrap();
                let timeout = Some(Duration::from_secs(10));
                socket.set_read_timeout(timeout).unwrap();
                UdpSocket::from(socket)
            });
            let sockets: Vec<UdpSocket> = sockets.collect();
            let copies = sockets.iter().map(|it| it.try_clone().unwrap().into());
            let holder = Holder::start(copies.collect());
            Self { holder, sockets }
        }
    }

    fn id(mark: IdMark, worker: u8) -> [u8; ID_BYTES as usize] {
        let mut id = [0x55; ID_BYTES as usize];
        (id[0], id[ID_BYTES as usize - 1]) = (mark.first_byte(), worker);
        id
    }

    fn short(mark: IdMark, worker: u8) -> Vec<u8> {
        [&[0x40], id(mark, worker).as_slice(), &[0; 20]].concat()
    }

    fn long(id: &[u8]) -> Vec<u8> {
        let length = u8::try_from(id.len()).unwrap();
        [&[0xc0, 0, 0, 0, 1, length], id, &[0; 1200]].concat()
    }

    #[track_caller]
    fn arrives(datagram: &[u8], address: SocketAddr, at: &UdpSocket) {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.send_to(datagram, address).unwrap();
        let mut buffer = [0; 2000];
        let (length, sender) = at.recv_from(&mut buffer).unwrap();
        assert_eq!(sender, client.local_addr().unwrap());
        assert_eq!(&buffer[..length], datagram);
    }

    #[test]
    fn datagrams_reach_worker_that_issued_their_id() {
        // No other test uses this address.
        let free = UdpSocket::bind((Ipv4Addr::new(127, 81, 85, 73), 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let (first, second) = (IdMark::after(None), IdMark::after(Some(1)));
        let mut before = Server::start(address);
        let directory = tempfile::tempdir().unwrap();
        let running = RunningEnvoy {
            identity: Identity {
                pid: before.holder.process.pid(),
                start_time: before.holder.process.start_time(),
                executable: None,
                bootstrap_digest: String::new(),
                arguments: Vec::new(),
                lineage: None,
                stopping: false,
                id_mark: Some(first.number()),
            },
            process: before.holder.process.clone(),
        };
        let addresses = BTreeSet::from([address]);
        let unknown = QuicSinks::join(directory.path(), &running, &addresses);
        assert!(unknown.0.is_empty(), "nothing is known of the order");
        record_order(directory.path(), &before.holder.process, BTreeSet::new());
        let sinks = QuicSinks::join(directory.path(), &running, &addresses);
        let after = Server::start(address);
        let steering = sinks.steer(&after.holder.process);
        assert_eq!(steering.0.len(), 1, "the group is steered");
        for worker in [0u8, 1] {
            let at = usize::from(worker);
            for datagram in [short(first, worker), long(&id(first, worker))] {
                arrives(&datagram, address, &before.sockets[at]);
            }
            for datagram in [short(second, worker), long(&id(second, worker))] {
                arrives(&datagram, address, &after.sockets[at]);
            }
            // IDs of clients.
            arrives(
                &long(&[0, 0, 0, worker, 9, 9, 9, 9]),
                address,
                &after.sockets[at],
            );
        }
        arrives(b"short", address, &after.sockets[0]);

        before.holder.end();
        before.sockets.clear();
        steering.finish(directory.path(), &after.holder.process);
        let order = SocketOrder::read(directory.path(), &after.holder.process);
        assert_eq!(order.unwrap().unknown, BTreeSet::new());
        for worker in [0u8, 1] {
            let at = usize::from(worker);
            for datagram in [short(second, worker), long(&id(second, worker))] {
                arrives(&datagram, address, &after.sockets[at]);
            }
        }
        let left = listening::datagrams(after.holder.process.pid());
        let left = left.iter().filter(|socket| socket.address == address);
        assert_eq!(left.count(), WORKERS);
    }
}
