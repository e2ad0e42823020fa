//! Listeners that Envoy could not open, by Envoy's name of them: one for each port and address.
//!
//! Nothing is wrong with their configuration, so they are tried again by themselves: when the address can be bound,
//! asked with growing pauses. They are left out of what is published, so that others are not held up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};

use crate::host::port_owner::{self, PortOwner};
use crate::host::privileged_ports::{self, PrivilegedPort};
use sesame_proto::schema::Transport;
use sesame_render::{Rendered, Resource};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A listener that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundSocket {
    /// Where it was to listen.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub transport: Transport,
    /// Envoy's reason.
    pub envoy_words: String,
    /// Who is in the way, if that could be told.
    pub holder: Option<PortOwner>,
    /// That it needs a capability, if that is why.
    pub low: Option<PrivilegedPort>,
    /// When it was refused first.
    pub since: Timestamp,
    /// For a refusal that has nothing to do with the address: the refused resource. It is not tried again.
    refused: Option<Resource>,
    failures: u32,
    next: Instant,
    /// It is part of what is being published now.
    trying: bool,
}

/// Those that are left out, by Envoy's name.
#[derive(Clone, Debug, Default)]
pub struct Unbound {
    sockets: BTreeMap<String, UnboundSocket>,
}

impl Unbound {
    /// Those that are left out now.
    pub fn iter(&self) -> impl Iterator<Item = &UnboundSocket> {
        self.sockets.values().filter(|socket| !socket.trying)
    }

    /// Whether a listener of this name is left out.
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
        let Some((transport, address)) = parse(listener) else {
            return false;
        };
        let before = self.sockets.get(listener);
        if before.is_some_and(|socket| !socket.trying) {
            return false;
        }
        let failures = before.map_or(0, |socket| socket.failures).saturating_add(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8));
        let socket = UnboundSocket {
            address,
            transport,
            low: privileged_ports::explain(address.port(), &envoy_words),
            envoy_words,
            holder: port_owner::find(transport, address.ip(), address.port()),
            since: before.map_or(now, |socket| socket.since),
            refused,
            failures,
            next: Instant::now() + pause.min(LONGEST_PAUSE),
            trying: false,
        };
        self.sockets.insert(listener.to_owned(), socket);
        true
    }

    /// Forgets what is not wanted any more, or is wanted in another form.
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

    /// What is tried now was accepted.
    pub(super) fn accepted(&mut self) {
        self.sockets.retain(|_, socket| !socket.trying);
    }

    /// Leaves the listeners out.
    pub(super) fn leave_out(&self, rendered: &mut Rendered) {
        rendered.listeners.retain(|l| !self.has(&l.name));
    }

    /// When to call [`Unbound::probe`] next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.sockets
            .values()
            .filter(|socket| !socket.trying && socket.refused.is_none())
            .map(|socket| socket.next)
            .min()
    }

    /// Asks the kernel about those whose time has come; whether one could be opened now and is to be tried.
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
                let pause = FIRST_PAUSE.saturating_mul(1 << socket.failures.min(8));
                socket.next = now + pause.min(LONGEST_PAUSE);
            }
        }
        any
    }
}

/// Where TCP listeners of a configuration listen.
pub fn tcp_addresses(rendered: &Rendered) -> BTreeSet<SocketAddr> {
    let all = rendered.listeners.iter();
    all.filter_map(|listener| match parse(&listener.name)? {
        (Transport::Tcp, address) => Some(address),
        (Transport::Udp, _) => None,
    })
    .collect()
}

/// `tcp/127.0.0.1/80`.
fn parse(listener: &str) -> Option<(Transport, SocketAddr)> {
    let mut parts = listener.split('/');
    let transport = match parts.next()? {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        _ => return None,
    };
    let address: IpAddr = parts.next()?.parse().ok()?;
    let port: u16 = parts.next()?.parse().ok()?;
    parts
        .next()
        .is_none()
        .then_some((transport, SocketAddr::new(address, port)))
}

/// Binds as Envoy does, without listening: no connection is lost to it. What cannot be asked is worth a try.
fn can_bind(transport: Transport, address: SocketAddr) -> bool {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let kind = match transport {
        Transport::Tcp => SockType::Stream,
        Transport::Udp => SockType::Datagram,
    };
    let Ok(fd) = socket(family, kind, SockFlag::SOCK_CLOEXEC, None) else {
        return true;
    };
    // Failures show when binding.
    let _ = setsockopt(&fd, sockopt::ReuseAddr, &true);
    let _ = setsockopt(&fd, sockopt::ReusePort, &true);
    if address.is_ipv6() {
        let _ = setsockopt(&fd, sockopt::Ipv6V6Only, &true);
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).is_ok()
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

    /// A process that another test of this one starts has a copy of every socket until it runs its own program, so
    /// a port is free a moment after it was let go.
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
        assert_eq!(socket.holder.as_ref().unwrap().pid, std::process::id());
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
