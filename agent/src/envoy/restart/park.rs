//! Parks sockets that hold new connections while no Envoy is running.
//!
//! At each of Envoy's addresses, the agent opens a listening socket in the same SO_REUSEPORT group.
//! A BPF program on the group chooses only among Envoy's sockets, so the agent's socket gets no
//! connections while Envoy is alive. When Envoy dies, only the agent's socket is left in the group.
//! The kernel moves waiting connections to it and queues new ones there. When the next Envoy
//! listens and the agent closes its socket, the kernel hands over all waiting connections,
//! including the data already sent.
//!
//! This requires `net.ipv4.tcp_migrate_req` = 1. Otherwise, the kernel would reset such
//! connections, so nothing is parked. Never withhold a connection from a live Envoy: a connection
//! that arrives here because Envoy's sockets changed is handed over shortly.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;
use tokio::time::sleep;

use super::moves_connections;
use super::reuseport::Choice;
use super::steer::{attach, join, own};
use crate::envoy::process::Process;
use crate::host::listening::{self, Listening};

/// Length of the accept queue, which the kernel also limits to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;
/// Interval between checks for waiting connections.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a terminating Envoy may take to close its sockets one by one. An Envoy that lives
/// longer is not terminating.
const SETTLED: Duration = Duration::from_millis(100);

/// The agent's own sockets at its Envoy's addresses.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    sockets: BTreeMap<SocketAddr, Socket>,
    /// Addresses at which no socket could be parked. Each such address is logged only once.
    refused: BTreeSet<SocketAddr>,
}

impl Parked {
    /// Returns true if no socket is parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Parks a socket at each wanted address where only `process` listens. Closes parked sockets at
    /// all other addresses.
    pub(crate) fn follow(&mut self, process: &Process, wanted: &BTreeSet<SocketAddr>) {
        let is_wanted = |address: &SocketAddr| wanted.contains(address);
        let gone: Vec<SocketAddr> = self.sockets.keys().copied().collect();
        for address in gone.iter().filter(|address| !is_wanted(address)) {
            self.let_go(*address);
        }
        let new = |address: &&SocketAddr| !self.sockets.contains_key(*address);
        let new: Vec<SocketAddr> = wanted.iter().filter(new).copied().collect();
        if !new.is_empty() && moves_connections() {
            let (all, held) = (
                listening::all(process.pid()),
                listening::held(process.pid()),
            );
            for address in new {
                match park(process, address, &all, &held) {
                    Ok(Some(socket)) => {
                        self.sockets.insert(address, socket);
                    }
                    Err(error) if self.refused.insert(address) => {
                        tracing::warn!(%address, %error, "new connections to this address would be refused while a dead Envoy is replaced");
                    }
                    Ok(None) | Err(_) => {}
                }
            }
        }
    }

    /// Closes all parked sockets. The kernel hands over waiting connections to the process that
    /// listens at the same address, if any.
    pub(crate) fn release(&mut self) {
        for address in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.let_go(address);
        }
    }

    /// Returns once a connection has waited at a parked socket for `SETTLED`.
    pub(crate) async fn is_awaited(&self) {
        if self.sockets.is_empty() {
            std::future::pending::<()>().await;
        }
        while self.awaited().is_empty() {
            sleep(POLL_INTERVAL).await;
        }
        sleep(SETTLED).await;
    }

    /// Hands over waiting connections to the process if it listens at the same address. Otherwise,
    /// they remain parked until the process exits. Returns true if any were handed over.
    pub(crate) fn hand_over(&mut self, process: &Process) -> bool {
        let before = self.sockets.len();
        let (all, held) = (
            listening::all(process.pid()),
            listening::held(process.pid()),
        );
        for address in self.awaited() {
            let is_there =
                |socket: &Listening| socket.address == address && held.contains_key(&socket.inode);
            if all.iter().any(is_there) {
                tracing::debug!(%address, "handing a connection at the agent's socket over to Envoy");
                self.let_go(address);
            }
        }
        self.sockets.len() < before
    }

    /// Closes parked sockets at which connections are still waiting because no Envoy has taken
    /// them.
    pub(crate) fn give_up(&mut self) {
        for address in self.awaited() {
            self.let_go(address);
        }
    }

    fn awaited(&self) -> Vec<SocketAddr> {
        let awaited = |socket: &Socket| {
            let mut polled = [PollFd::new(socket, PollFlags::IN)];
            matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
        };
        let sockets = self.sockets.iter();
        sockets
            .filter(|(_, socket)| awaited(socket))
            .map(|(address, _)| *address)
            .collect()
    }

    fn let_go(&mut self, address: SocketAddr) {
        let Some(socket) = self.sockets.remove(&address) else {
            return;
        };
        // The BPF program's socket indexes are now stale, so let the kernel choose.
        if let Err(error) = attach(&socket, Choice::Any) {
            tracing::debug!(%address, %error, "cannot reset the steering program");
        }
    }
}

/// Opens an additional socket at the address, which the kernel never chooses. Returns `None` unless
/// `process` is the only process listening there.
fn park(
    process: &Process,
    address: SocketAddr,
    all: &[Listening],
    held: &BTreeMap<u64, i32>,
) -> io::Result<Option<Socket>> {
    let there = all.iter().filter(|socket| socket.address == address);
    let (its, others): (Vec<&Listening>, Vec<&Listening>) =
        there.partition(|socket| held.contains_key(&socket.inode));
    let count = u32::try_from(its.len()).map_err(io::Error::other)?;
    if count == 0 || !others.is_empty() {
        return Ok(None);
    }
    let choice = Choice::Among { first: 0, count };
    let through_its = its.iter().any(|socket| {
        let descriptor = held.get(&socket.inode).copied();
        descriptor.is_some_and(|descriptor| {
            own(process, socket.inode, descriptor)
                .and_then(|socket| attach(&socket, choice))
                .is_ok()
        })
    });
    // Drop new connections at this socket until the BPF program no longer chooses it.
    let socket = join(address, BACKLOG)?;
    if !through_its {
        attach(&socket, choice)?;
    }
    socket.detach_filter()?;
    Ok(Some(socket))
}
