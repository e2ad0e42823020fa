//! Parked sockets: the agent's listening sockets that hold new connections while no Envoy runs.
//!
//! At each of Envoy's addresses, the agent opens a listening socket in the same SO_REUSEPORT group
//! as Envoy's sockets. A BPF program makes the kernel choose only Envoy's sockets, so the agent's
//! socket gets no connections while Envoy is alive. When Envoy dies, only the agent's socket is
//! left in the group. The kernel moves waiting connections to the agent's socket and queues new
//! ones there. Once the next Envoy listens at the address, the agent closes its socket. The kernel
//! then hands over all waiting connections, including the data already sent.
//!
//! Parking requires `net.ipv4.tcp_migrate_req` = 1. With any other value, the kernel would reset
//! waiting connections when a socket closes, so nothing is parked. Never withhold connections from
//! a live Envoy: if a connection reaches a parked socket because Envoy's sockets changed, hand it
//! over promptly.

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

/// Length of the accept queue. The kernel also limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;
/// Interval between checks for connections waiting at parked sockets.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time allowed for a terminating Envoy to close its sockets one by one and exit. If Envoy is still
/// alive afterwards, it is not terminating.
const SETTLED: Duration = Duration::from_millis(100);

/// The agent's listening sockets at the addresses of one Envoy.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    sockets: BTreeMap<SocketAddr, Socket>,
    /// Addresses at which parking has failed. Only the first failure at each address is logged.
    refused: BTreeSet<SocketAddr>,
}

impl Parked {
    /// Returns true if no socket is parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Parks a socket at each wanted address where `process` is the only listener. Closes parked
    /// sockets at all other addresses.
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

    /// Closes all parked sockets. If another process listens at the same address, the kernel moves
    /// waiting connections to that process.
    pub(crate) fn release(&mut self) {
        for address in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.let_go(address);
        }
    }

    /// Waits until a connection arrives at a parked socket, and then for the duration `SETTLED`.
    pub(crate) async fn is_awaited(&self) {
        if self.sockets.is_empty() {
            std::future::pending::<()>().await;
        }
        while self.awaited().is_empty() {
            sleep(POLL_INTERVAL).await;
        }
        sleep(SETTLED).await;
    }

    /// Closes each parked socket with waiting connections if `process` listens at the same address,
    /// so that `process` gets the connections. All other connections keep waiting. Returns true if
    /// any socket was closed.
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

    /// Closes parked sockets at which connections are still waiting. If no process listens at the
    /// same address, the connections are reset.
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
        // The socket indexes in the BPF program are now stale. Attach a program that leaves the
        // choice to the kernel.
        if let Err(error) = attach(&socket, Choice::Any) {
            tracing::debug!(%address, %error, "cannot reset the steering program");
        }
    }
}

/// Opens an additional listening socket at the address, and makes the BPF program exclude it.
/// Returns `None` unless `process` is the only other process that listens at the address.
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
    // The new socket drops packets until the BPF program excludes it.
    let socket = join(address, BACKLOG)?;
    if !through_its {
        attach(&socket, choice)?;
    }
    socket.detach_filter()?;
    Ok(Some(socket))
}
