//! The part of a Gateway's listeners that its owner controls. Users of the Gateway control layer 4
//! routes, ListenerSets and TLS hosts, so these must not hold changes for all users.

use crate::schema::{Listener, Port, Snapshot, Transport};

/// Returns true if the name of a listener or filter chain shows that a user of the Gateway defined it.
pub fn is_of_user(name: &str) -> bool {
    name.starts_with("ListenerSet/") || name.starts_with("TLSHost/")
}

/// Returns the listeners and their settings, but neither routes nor what users of the Gateway define.
pub fn listeners(snapshot: &Snapshot) -> Snapshot {
    Snapshot {
        gateway: snapshot.gateway.clone(),
        addresses: snapshot.addresses.clone(),
        ports: ports(&snapshot.ports),
        edge: snapshot.edge,
        tracing: snapshot.tracing.clone(),
        log_output: snapshot.log_output.clone(),
        ..Snapshot::default()
    }
}

pub(crate) fn ports(all: &[Port]) -> Vec<Port> {
    let owned = all.iter().filter(|port| is_owned(port, all));
    let without_users = |port: &Port| Port {
        listeners: listeners_of(port).map(without_routes).collect(),
        client_address: port.client_address.clone(),
        ..*port
    };
    owned.map(without_users).collect()
}

/// HTTP/3 belongs to the owner of the TCP port.
pub(crate) fn is_owned(port: &Port, all: &[Port]) -> bool {
    let is_tcp = |it: &&Port| it.transport() == Transport::Tcp && it.port == port.port;
    let port = Some(port).filter(|port| !port.http3);
    let port = port.or_else(|| all.iter().find(is_tcp));
    port.is_some_and(|port| listeners_of(port).next().is_some())
}

fn listeners_of(port: &Port) -> impl Iterator<Item = &Listener> {
    port.listeners.iter().filter(|it| !is_of_user(&it.name))
}

fn without_routes(listener: &Listener) -> Listener {
    Listener {
        l4_routes: Vec::new(),
        ..listener.clone()
    }
}
