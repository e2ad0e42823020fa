//! Listeners that Envoy could not open, by Envoy's name for them: one for each port and address.
//!
//! Their configuration is valid, so they are retried when the address can be bound, which is
//! checked with growing pauses. They are left out of publications, so that others are not delayed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::host::can_bind;
use crate::host::port_owner::{self, PortOwner};
use crate::host::privileged_ports::{self, PrivilegedPort};
use crate::xds::parse_listener_name;
use sesame_proto::schema::Transport;
use sesame_render::{Rendered, Resource};

/// Pause before a port that could not be bound is tried again; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Returns the pause after this number of doublings.
fn pause_after(doublings: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(8));
    pause.min(LONGEST_PAUSE)
}

/// Listener that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundSocket {
    /// Address on which it was to listen.
    pub address: SocketAddr,
    /// Transport of the port.
    pub transport: Transport,
    /// Envoy's message.
    pub envoy_words: String,
    /// Process that holds the port, if known.
    pub owner: Option<PortOwner>,
    /// Explanation that the port needs a capability, if it does.
    pub privileged: Option<PrivilegedPort>,
    /// Time of the first refusal.
    pub since: Timestamp,
    /// Refused resource, if the refusal has nothing to do with the address. It is not tried again.
    refused: Option<Resource>,
    failures: u32,
    next: Instant,
    /// True while it is part of the current publication.
    trying: bool,
}

/// Listeners that are left out, by Envoy's name.
#[derive(Clone, Debug, Default)]
pub struct Unbound {
    sockets: BTreeMap<String, UnboundSocket>,
}

impl Unbound {
    /// Returns the listeners that are left out now.
    pub fn iter(&self) -> impl Iterator<Item = &UnboundSocket> {
        self.sockets.values().filter(|socket| !socket.trying)
    }

    /// Returns true if a listener of this name is left out.
    pub(super) fn has(&self, listener: &str) -> bool {
        self.sockets
            .get(listener)
            .is_some_and(|socket| !socket.trying)
    }

    /// Notes a refusal; `false` if the listener is already left out, or has no such name.
    pub(super) fn add(
        &mut self,
        listener: &str,
        envoy_words: String,
        refused: Option<Resource>,
        now: Timestamp,
    ) -> bool {
        let Some((transport, address)) = parse_listener_name(listener) else {
            return false;
        };
        let before = self.sockets.get(listener);
        if before.is_some_and(|socket| !socket.trying) {
            return false;
        }
        let failures = before.map_or(0, |socket| socket.failures).saturating_add(1);
        let pause = pause_after(failures.saturating_sub(1));
        let socket = UnboundSocket {
            address,
            transport,
            privileged: privileged_ports::explain(address.port(), &envoy_words),
            envoy_words,
            owner: port_owner::find(transport, address.ip(), address.port()),
            since: before.map_or(now, |socket| socket.since),
            refused,
            failures,
            next: Instant::now() + pause,
            trying: false,
        };
        self.sockets.insert(listener.to_owned(), socket);
        true
    }

    /// Forgets listeners that are not wanted any more, or are wanted in another form.
    pub(super) fn keep(&mut self, wanted: &Rendered) {
        self.sockets.retain(|name, socket| {
            let listener = wanted.listeners.iter().find(|l| l.name == *name);
            match (listener, &socket.refused) {
                (None, _) => false,
                (Some(listener), Some(refused)) => listener == refused,
                (Some(_), None) => true,
            }
        });
    }

    /// Forgets the listeners that were tried, because they were accepted.
    pub(super) fn accepted(&mut self) {
        self.sockets.retain(|_, socket| !socket.trying);
    }

    /// Leaves the listeners out.
    pub(super) fn leave_out(&self, rendered: &mut Rendered) {
        let listeners = rendered.listeners.iter().filter(|l| !self.has(&l.name));
        rendered.listeners = listeners.cloned().collect();
    }

    /// Returns the time at which [`Unbound::probe`] wants to be called.
    pub(super) fn next(&self) -> Option<Instant> {
        self.sockets
            .values()
            .filter(|socket| !socket.trying && socket.refused.is_none())
            .map(|socket| socket.next)
            .min()
    }

    /// Asks the kernel about the listeners whose time has come; `true` if one could be opened now and is to be tried.
    pub(super) fn probe(&mut self) -> bool {
        let now = Instant::now();
        let mut any = false;
        for socket in self.sockets.values_mut() {
            if socket.trying || socket.refused.is_some() || socket.next > now {
                continue;
            }
            if can_bind(socket.transport, socket.address) {
                socket.trying = true;
                any = true;
            } else {
                socket.failures = socket.failures.saturating_add(1);
                socket.next = now + pause_after(socket.failures);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// An address of this module's tests alone: at 127.0.0.1 another test's connection may begin at the port that
    /// was let go.
    fn hold() -> TcpListener {
        TcpListener::bind((Ipv4Addr::new(127, 83, 69, 83), 0)).unwrap()
    }

    /// Polls until a port is free. A child forked by another test holds a copy of every socket
    /// until it calls `execve`.
    fn soon(mut is_so: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if is_so() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn a_held_port_cannot_be_bound_until_it_is_let_go() {
        let held = hold();
        let address = held.local_addr().unwrap();
        assert!(!can_bind(Transport::Tcp, address));
        drop(held);
        assert!(soon(|| can_bind(Transport::Tcp, address)));
    }

    #[test]
    fn a_refused_listener_is_left_out_until_its_port_is_free() {
        let held = hold();
        let address = held.local_addr().unwrap();
        let name = format!("tcp/{}/{}", address.ip(), address.port());
        let mut unbound = Unbound::default();
        assert!(unbound.add(&name, "in use".to_owned(), None, Timestamp::UNIX_EPOCH));
        let socket = unbound.iter().next().unwrap();
        assert_eq!(socket.owner.as_ref().unwrap().pid, std::process::id());
        assert!(!unbound.add(&name, "in use".to_owned(), None, Timestamp::UNIX_EPOCH));
        unbound.sockets.get_mut(&name).unwrap().next = Instant::now();
        assert!(!unbound.probe());
        assert!(unbound.has(&name));
        drop(held);
        assert!(soon(|| {
            unbound.sockets.get_mut(&name).unwrap().next = Instant::now();
            unbound.probe()
        }));
        assert!(!unbound.has(&name));
        unbound.accepted();
        assert!(unbound.next().is_none());
    }
}
