//! Tracks listeners that Envoy could not open.
//!
//! Such listeners are usually valid, so they are excluded only until their address can be bound.
//! The address is checked at increasing intervals.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_backoff::Backoff;

use sesame_host::can_bind;
use sesame_host::port_owner::{self, PortOwner};
use sesame_host::privileged_ports::{self, PrivilegedPort};
use sesame_proto::schema::Transport;
use sesame_render::xds::parse_listener_name;
use sesame_render::{Rendered, Resource};

const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// A listener that Envoy could not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundSocket {
    /// Listening address.
    pub address: SocketAddr,
    /// Transport protocol.
    pub transport: Transport,
    /// Envoy's message.
    pub envoy_words: String,
    /// Process that owns the port, if known.
    pub owner: Option<PortOwner>,
    /// Set if binding the port requires a capability that the agent lacks.
    pub privileged: Option<PrivilegedPort>,
    /// When Envoy first failed to open the listener.
    pub since: Timestamp,
    /// Set if Envoy rejected the listener itself, not only its address. Such a listener is retried
    /// only after it changes.
    refused: Option<Resource>,
    backoff: Backoff,
    next: Instant,
    /// True while the listener is being retried, and therefore not excluded.
    trying: bool,
}

/// Listeners that Envoy could not open, by their name in Envoy.
#[derive(Clone, Debug, Default)]
pub struct Unbound {
    sockets: BTreeMap<String, UnboundSocket>,
}

impl Unbound {
    /// Yields excluded listeners, but not those being retried.
    pub fn iter(&self) -> impl Iterator<Item = &UnboundSocket> {
        self.sockets.values().filter(|socket| !socket.trying)
    }

    pub(super) fn has(&self, listener: &str) -> bool {
        self.sockets
            .get(listener)
            .is_some_and(|socket| !socket.trying)
    }

    /// Returns `false` if the listener is already excluded or its name is invalid.
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
        let mut backoff = before.map_or(PAUSES, |socket| socket.backoff);
        let pause = backoff.next_pause();
        let socket = UnboundSocket {
            address,
            transport,
            privileged: privileged_ports::explain(address.port(), &envoy_words),
            envoy_words,
            owner: port_owner::find(transport, address.ip(), address.port()),
            since: before.map_or(now, |socket| socket.since),
            refused,
            backoff,
            next: Instant::now() + pause,
            trying: false,
        };
        self.sockets.insert(listener.to_owned(), socket);
        true
    }

    /// Forgets listeners that are gone, and rejected listeners that have changed.
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

    /// Call this once Envoy has accepted the retried listeners.
    pub(super) fn accepted(&mut self) {
        self.sockets.retain(|_, socket| !socket.trying);
    }

    pub(super) fn leave_out(&self, rendered: &mut Rendered) {
        let listeners = rendered.listeners.iter().filter(|l| !self.has(&l.name));
        rendered.listeners = listeners.cloned().collect();
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.sockets
            .values()
            .filter(|socket| !socket.trying && socket.refused.is_none())
            .map(|socket| socket.next)
            .min()
    }

    /// Returns `true` if any address can be bound. The caller must then publish its listener again.
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
                socket.next = now + socket.backoff.next_pause();
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// No other module uses this address. On 127.0.0.1, another test's connection could take the
    /// port after it is released.
    fn hold() -> TcpListener {
        TcpListener::bind((Ipv4Addr::new(127, 83, 69, 83), 0)).unwrap()
    }

    /// A port may stay in use for a moment: a child of another test holds all sockets until
    /// `execve`.
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
    fn held_port_cannot_be_bound_until_released() {
        let held = hold();
        let address = held.local_addr().unwrap();
        assert!(!can_bind(Transport::Tcp, address));
        drop(held);
        assert!(soon(|| can_bind(Transport::Tcp, address)));
    }

    #[test]
    fn refused_listener_is_omitted_until_port_is_free() {
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
