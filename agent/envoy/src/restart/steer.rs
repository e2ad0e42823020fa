//! Steers new connections to the second Envoy while both have the same ports open.
//!
//! Closing a listening socket resets the connections in its accept queue, so a BPF program first
//! directs new connections to the second Envoy. Attaching the program to that Envoy's socket
//! requires ptrace access. Without it, the agent attaches the program to its own socket in the
//! SO_REUSEPORT group. That socket drops all packets, so clients retransmit.
//!
//! The kernel keeps the program as long as the group exists, so reset it once the first Envoy has
//! exited.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use nix::libc::{BPF_K, BPF_RET, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockFilter, Socket, Type};

use super::reuseport::{Choice, SocketGroup, groups, instruction};
use crate::process::Process;
use sesame_host::listening::{self, Listening};

const MAX_READS: usize = 20;

#[derive(Debug)]
pub(crate) struct Steering {
    before: Process,
    after: Process,
    groups: Vec<SocketGroup>,
}

/// Final steering, to one socket of the second process per address where possible. Release it once
/// the first process has exited.
#[derive(Debug)]
#[must_use]
pub(crate) struct FinalSteering(Vec<Member>);

#[derive(Debug)]
struct Member {
    socket: OwnedFd,
    /// Additional sockets that keep the chosen socket's index valid while others close.
    more: Vec<OwnedFd>,
}

/// If steering fails, the kernel distributes connections between the two Envoy processes.
#[derive(Debug, thiserror::Error)]
#[error("new connections to {address} cannot be steered to the new Envoy: {source}")]
pub(crate) struct SteerError {
    address: SocketAddr,
    source: io::Error,
}

impl Steering {
    /// Resets all steering on error.
    pub(crate) fn start(before: &Process, after: &Process) -> Result<Self, SteerError> {
        let table = SocketTable::read_stable(Some(before), after);
        let groups = table.groups();
        for group in &groups {
            let among = Choice::Among {
                first: group.before,
                count: group.after,
            };
            let set = if group.others == 0 {
                table
                    .member(group.address)
                    .and_then(|socket| attach(&socket, among))
            } else {
                Err(io::Error::other(
                    "other sockets also listen on this address",
                ))
            };
            if let Err(source) = set {
                reset_steering(after);
                return Err(SteerError {
                    address: group.address,
                    source,
                });
            }
        }
        Ok(Self {
            before: before.clone(),
            after: after.clone(),
            groups,
        })
    }

    pub(crate) fn is_awaited(&self) -> bool {
        listening::for_process(self.before.pid()).any(|socket| socket.waiting > 0)
    }

    /// Must be called immediately before the first process closes its sockets, because closing
    /// changes indexes.
    pub(crate) fn narrow(self) -> FinalSteering {
        let table = SocketTable::read_stable(Some(&self.before), &self.after);
        let now = table.groups();
        let mut members = Vec::new();
        for group in self.groups {
            match narrow(&table, &group, now.contains(&group)) {
                Ok(member) => members.push(member),
                // The listener and its group may have been removed.
                Err(error) => {
                    tracing::debug!(address = %group.address, %error, "cannot update the steering of new connections");
                }
            }
        }
        FinalSteering(members)
    }
}

impl FinalSteering {
    pub(crate) fn release(self) {
        for Member { socket, more } in self.0 {
            drop(more);
            if let Err(error) = attach(&socket, Choice::Any) {
                tracing::debug!(%error, "cannot reset the steering program");
            }
        }
    }
}

/// Resets the steering that an earlier agent may have left in place.
pub(crate) fn reset_steering(process: &Process) {
    let table = SocketTable::read(None, process);
    for Listening { address, inode, .. } in &table.all {
        let Some(descriptor) = table.after.get(inode) else {
            continue;
        };
        let set = own(process, *inode, *descriptor).and_then(|socket| attach(&socket, Choice::Any));
        if let Err(error) = set {
            // Fails if the socket is closed, inaccessible, or the only one at its address.
            tracing::debug!(%address, %error, "cannot reset the steering program");
        }
    }
}

struct SocketTable<'a> {
    process: &'a Process,
    all: Vec<Listening>,
    before: BTreeMap<u64, i32>,
    after: BTreeMap<u64, i32>,
}

impl<'a> SocketTable<'a> {
    fn read(before: Option<&Process>, process: &'a Process) -> Self {
        Self {
            process,
            all: listening::all(process.pid()),
            before: before.map_or_else(BTreeMap::new, |before| listening::held(before.pid())),
            after: listening::held(process.pid()),
        }
    }

    /// Indexes would be wrong if entries were missing.
    fn read_stable(before: Option<&Process>, process: &'a Process) -> Self {
        let read = || Self::read(before, process);
        read_stable(read, |again, seen| again.groups() == seen.groups())
    }

    fn groups(&self) -> Vec<SocketGroup> {
        groups(&self.all, &self.before, &self.after)
    }

    /// Joins the group with a new socket if access to the second process is denied.
    fn member(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let found = self
            .all
            .iter()
            .filter(|socket| socket.address == address)
            .find_map(|socket| Some((socket.inode, *self.after.get(&socket.inode)?)));
        let Some((inode, descriptor)) = found else {
            return Err(io::ErrorKind::NotFound.into());
        };
        own(self.process, inode, descriptor).or_else(|denied| {
            tracing::debug!(%address, error = %denied, "cannot copy the new Envoy's socket; joining its SO_REUSEPORT group");
            join(address, 0).map(OwnedFd::from).map_err(|error| {
                io::Error::other(format!("cannot copy Envoy's socket: {denied}; cannot join its group: {error}"))
            })
        })
    }
}

fn narrow(table: &SocketTable<'_>, group: &SocketGroup, is_as_known: bool) -> io::Result<Member> {
    let socket = table.member(group.address)?;
    let mut more = Vec::new();
    let choice = if is_as_known {
        for _ in 0..group.missing() {
            more.push(join(group.address, 0)?.into());
        }
        Choice::Only(group.before)
    } else {
        Choice::Any
    };
    attach(&socket, choice)?;
    Ok(Member { socket, more })
}

pub(super) fn own(process: &Process, inode: u64, descriptor: i32) -> io::Result<OwnedFd> {
    let socket = process.duplicate(descriptor)?;
    // The process may have closed the socket and reused the descriptor for another file.
    if rustix::fs::fstat(&socket)?.st_ino == inode {
        Ok(socket)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Listens at the address with a socket that drops all packets.
pub(super) fn join(address: SocketAddr, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    bind_dropping(&socket, address)?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Binds a socket of an SO_REUSEPORT group, which drops all packets.
pub(super) fn bind_dropping(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // Envoy sets this option, too. A socket without it would be in another group.
        socket.set_only_v6(true)?;
    }
    let nothing = instruction(BPF_RET | BPF_K, 0);
    socket.attach_filter(&[SockFilter::new(
        nothing.code,
        nothing.jt,
        nothing.jf,
        nothing.k,
    )])?;
    socket.bind(&address.into())
}

/// While sockets open or close, the kernel's tables may omit or repeat entries. Reads until two
/// results agree.
pub(super) fn read_stable<T>(read: impl Fn() -> T, is_same: impl Fn(&T, &T) -> bool) -> T {
    let mut seen = read();
    for _ in 0..MAX_READS {
        let again = read();
        if is_same(&again, &seen) {
            break;
        }
        seen = again;
    }
    seen
}

pub(super) fn attach(socket: &impl AsFd, choice: Choice) -> io::Result<()> {
    let mut code = choice.program();
    let program = sock_fprog {
        len: u16::try_from(code.len()).map_err(io::Error::other)?,
        filter: code.as_mut_ptr(),
    };
    Ok(setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::restart::holder::Holder;

    /// Listens but never accepts, so waiting connections can be counted.
    struct Server {
        holder: Holder,
        address: SocketAddr,
    }

    impl Server {
        fn start(address: IpAddr, sockets: usize) -> Self {
            for _ in 0..100 {
                // Find an unused port without SO_REUSEPORT, because with it the kernel may choose
                // another test's port.
                let free = TcpListener::bind((address, 0)).unwrap();
                let address = free.local_addr().unwrap();
                drop(free);
                // Another process's outgoing connection may have taken the port in the meantime.
                if let Ok(sockets) = listening_at(address, sockets) {
                    return Self::with(address, sockets);
                }
            }
            panic!("no free port on {address}");
        }

        fn start_at(address: SocketAddr, sockets: usize) -> Self {
            Self::with(address, listening_at(address, sockets).unwrap())
        }

        fn with(address: SocketAddr, sockets: Vec<OwnedFd>) -> Self {
            let holder = Holder::start(sockets);
            Self { holder, address }
        }

        fn waiting(&self) -> Vec<u32> {
            let held = listening::held(self.holder.process.pid());
            listening::all(self.holder.process.pid())
                .iter()
                .filter(|socket| held.contains_key(&socket.inode))
                .map(|socket| socket.waiting)
                .collect()
        }
    }

    fn listening_at(address: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
        let listening = |_| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            if address.is_ipv6() {
                // Envoy sets the same options.
                socket.set_only_v6(true)?;
            }
            socket.bind(&address.into())?;
            socket.listen(1024)?;
            Ok(OwnedFd::from(socket))
        };
        (0..count).map(listening).collect()
    }

    fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
        (0..count)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect()
    }

    fn is_open(client: &TcpStream) -> bool {
        client.set_nonblocking(true).unwrap();
        let read = { client }.read(&mut [0]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// `connect` may return before the kernel has queued the connection for `accept`.
    fn settled(all: u32, waiting: impl Fn() -> (u32, u32)) -> (u32, u32) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = waiting();
            if found.0 + found.1 >= all {
                return found;
            }
            assert!(Instant::now() < deadline, "{found:?} of {all}");
            std::thread::yield_now();
        }
    }

    fn steered(address: IpAddr, sockets_before: usize, sockets_after: usize) {
        let mut before = Server::start(address, sockets_before);
        let address = before.address;
        let after = Server::start_at(address, sockets_after);
        let sum = |server: &Server| server.waiting().iter().sum::<u32>();
        let _early = connect(address, 100);
        let early = settled(100, || (sum(&before), sum(&after)));
        assert!(early.0 > 0 && early.1 > 0, "by the hash: {early:?}");

        let steering = Steering::start(&before.holder.process, &after.holder.process).unwrap();
        assert!(steering.is_awaited());
        let mut clients = connect(address, 100);
        let now = settled(200, || (sum(&before), sum(&after)));
        assert_eq!(now, (early.0, early.1 + 100));
        assert!(after.waiting().iter().all(|waiting| *waiting > 0));

        let narrowed = steering.narrow();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let crowd = scope.spawn(|| {
                let mut clients = connect(address, 20);
                while !is_over.load(Ordering::Relaxed) && clients.len() < 400 {
                    clients.extend(connect(address, 1));
                }
                clients
            });
            before.holder.end();
            narrowed.release();
            is_over.store(true, Ordering::Relaxed);
            clients.extend(crowd.join().unwrap());
        });
        let lost = clients.iter().filter(|client| !is_open(client)).count();
        assert_eq!(lost, 0, "of {}", clients.len());

        let narrow = after.waiting();
        let late = connect(address, 100);
        assert!(late.iter().all(is_open));
        let wide = after.waiting();
        let took = narrow
            .iter()
            .zip(&wide)
            .filter(|(narrow, wide)| wide > narrow);
        assert_eq!(took.count(), sockets_after, "{narrow:?} {wide:?}");
    }

    fn addresses() -> impl Iterator<Item = IpAddr> {
        [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ]
        .into_iter()
        .filter(|address| TcpListener::bind((*address, 0)).is_ok())
    }

    #[test]
    fn new_connections_reach_second_process_without_loss() {
        for address in addresses() {
            for (before, after) in [(1, 1), (2, 2), (1, 3), (3, 3)] {
                steered(address, before, after);
            }
        }
    }

    #[test]
    fn connections_survive_fewer_sockets_in_second_process() {
        for address in addresses() {
            for (before, after) in [(3, 1), (3, 2)] {
                steered(address, before, after);
            }
        }
    }

    #[test]
    fn joined_socket_steers_without_taking_connections() {
        for address in addresses() {
            let server = Server::start(address, 2);
            let joined = join(server.address, 0).unwrap();
            attach(&joined, Choice::Only(0)).unwrap();
            let clients = connect(server.address, 10);
            let waiting = || server.waiting();
            settled(10, || (waiting().iter().sum(), 0));
            assert_eq!(waiting().iter().max(), Some(&10));
            drop(joined);
            assert!(clients.iter().all(is_open));
        }
    }

    #[test]
    fn leftover_steering_program_is_removed() {
        let server = Server::start(Ipv4Addr::LOCALHOST.into(), 3);
        let table = SocketTable::read(None, &server.holder.process);
        let member = table.member(server.address).unwrap();
        attach(&member, Choice::Only(1)).unwrap();
        drop(member);
        reset_steering(&server.holder.process);
        let _clients = connect(server.address, 100);
        assert!(server.waiting().iter().all(|waiting| *waiting > 0));
    }
}
