//! Where new connections wait while there is no Envoy.
//!
//! At each address of its Envoy the agent has a socket of its own that listens, in the same SO_REUSEPORT group. A program on
//! the group chooses among Envoy's sockets only, so nothing comes to it while Envoy lives. When Envoy dies, it is all that
//! is left of the group: the kernel puts what waited at Envoy's sockets there, and what comes. When the next Envoy listens
//! and the agent closes its socket, the kernel hands over everything that waits, with the data already sent.
//!
//! The kernel does that where `net.ipv4.tcp_migrate_req` is 1, and resets such connections elsewhere: there nothing is parked.
//! A parked socket must never keep a connection from an Envoy that lives: one that comes to it all the same, because Envoy's
//! sockets are others than before, is handed over in a moment.

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

/// What the kernel keeps for a listener is less anyway, unless `net.core.somaxconn` says more.
const BACKLOG: i32 = 65_535;
/// How often it is looked whether something waits.
const LOOK: Duration = Duration::from_millis(500);
/// An Envoy that is being ended closes its sockets one by one; after this time it is gone, or lives.
const SETTLED: Duration = Duration::from_millis(100);

/// The sockets of the agent's at the addresses of an Envoy.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    sockets: BTreeMap<SocketAddr, Socket>,
    /// Where there can be none; it is said once.
    refused: BTreeSet<SocketAddr>,
}

impl Parked {
    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Has one at each of these addresses at which this process listens, and nobody else; at no other.
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
                        tracing::warn!(%address, %error, "new connections would be refused there while a dead Envoy is replaced");
                    }
                    Ok(None) | Err(_) => {}
                }
            }
        }
    }

    /// Has none any more. What waits is handed over to who listens there, if anybody does.
    pub(crate) fn release(&mut self) {
        for address in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.let_go(address);
        }
    }

    /// Returns when a connection waits at one of them, and has for a moment.
    pub(crate) async fn is_awaited(&self) {
        if self.sockets.is_empty() {
            std::future::pending::<()>().await;
        }
        while self.awaited().is_empty() {
            sleep(LOOK).await;
        }
        sleep(SETTLED).await;
    }

    /// Hands over what waits, where the process listens as well; elsewhere its end is waited for. Whether there was any.
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
                tracing::debug!(%address, "a connection has come to the agent's socket; Envoy gets it");
                self.let_go(address);
            }
        }
        self.sockets.len() < before
    }

    /// Lets go of those at which something waits that nobody has taken.
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
        // Places that the program knows are others now.
        if let Err(error) = attach(&socket, Choice::Any) {
            tracing::debug!(%address, %error, "connections are not left to the kernel again");
        }
    }
}

/// One more socket at the address, which is never chosen; none if the process is not the only one that listens there.
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
    // Drops what comes until nothing does.
    let socket = join(address, BACKLOG)?;
    if !through_its {
        attach(&socket, choice)?;
    }
    socket.detach_filter()?;
    Ok(Some(socket))
}
