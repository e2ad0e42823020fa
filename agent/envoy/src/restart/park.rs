//! Parked sockets, which hold new connections while no Envoy runs.
//!
//! The agent listens at Envoy's addresses in the same SO_REUSEPORT group, and a BPF program keeps
//! connections away from its socket. When Envoy dies, the kernel moves connections to the agent's
//! socket. When that socket closes, the kernel moves the connections, including received data, to
//! the next Envoy.
//!
//! Parking requires `net.ipv4.tcp_migrate_req` = 1; otherwise, the kernel resets waiting
//! connections when a socket closes. Never withhold connections from a live Envoy.

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
use crate::process::Process;
use sesame_host::listening::{self, Listening};

/// Maximum length of the accept queue, which the kernel also limits to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time for a terminating Envoy to close its sockets one by one and exit.
const SETTLED: Duration = Duration::from_millis(100);

/// Parked sockets, by the address at which Envoy listens.
#[derive(Debug, Default)]
pub struct Parked {
    sockets: BTreeMap<SocketAddr, Socket>,
    /// Only the first failure at an address is logged.
    refused: BTreeSet<SocketAddr>,
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

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

    /// Closes all parked sockets. The kernel moves their waiting connections to another listener at
    /// the same address.
    pub(crate) fn release(&mut self) {
        for address in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.let_go(address);
        }
    }

    pub(crate) async fn is_awaited(&self) {
        if self.sockets.is_empty() {
            std::future::pending::<()>().await;
        }
        while self.awaited().is_empty() {
            sleep(POLL_INTERVAL).await;
        }
        sleep(SETTLED).await;
    }

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
                tracing::debug!(%address, "passing connections from the agent's socket to Envoy");
                self.let_go(address);
            }
        }
        self.sockets.len() < before
    }

    /// Closes the parked sockets with waiting connections. The connections are reset if no other
    /// process listens at the same address.
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
        // The socket indexes in the BPF program are now stale.
        if let Err(error) = attach(&socket, Choice::Any) {
            tracing::debug!(%address, %error, "cannot reset the steering program");
        }
    }
}

/// Returns `None` unless `process` is the only other listener at the address.
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
    // A filter drops the new socket's packets until the BPF program excludes the socket.
    let socket = join(address, BACKLOG)?;
    if !through_its {
        attach(&socket, choice)?;
    }
    socket.detach_filter()?;
    Ok(Some(socket))
}
