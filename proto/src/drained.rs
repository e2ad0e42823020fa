//! Ports whose connections a change of a snapshot drains, for programs that cannot render it.

use crate::schema::{Listener, Port, Protocol, Snapshot, Transport};

/// Returns the old ports whose listeners Envoy replaces, or some of their filter chains. May include
/// ports of which Envoy drains nothing, because it does not know how the settings are rendered.
pub fn ports(old: &Snapshot, new: &Snapshot) -> Vec<(Transport, u32)> {
    let is_same = old.addresses == new.addresses
        && old.tracing == new.tracing
        && old.log_output == new.log_output;
    let is_drained = |port: &&Port| {
        let has_own = port.edge.is_some();
        !is_same || !has_own && old.edge != new.edge || is_changed(port, old, new)
    };
    let drained = old.ports.iter().filter(is_drained);
    drained.map(|port| (port.transport(), port.port)).collect()
}

fn find(snapshot: &Snapshot, transport: Transport, number: u32) -> Option<&Port> {
    let mut ports = snapshot.ports.iter();
    ports.find(|it| it.transport() == transport && it.port == number)
}

fn is_changed(port: &Port, old: &Snapshot, new: &Snapshot) -> bool {
    let Some(after) = find(new, port.transport(), port.port) else {
        return true;
    };
    let Port {
        transport: _,
        port: number,
        listeners,
        inside,
        proxy_protocol,
        http3,
        client_address,
        edge,
    } = port;
    // HTTP/3 serves the listeners of the TCP port.
    let is_tcp_changed =
        || find(old, Transport::Tcp, *number).is_some_and(|tcp| is_changed(tcp, old, new));
    *inside != after.inside
        || *proxy_protocol != after.proxy_protocol
        || *http3 != after.http3
        || *client_address != after.client_address
        || *edge != after.edge
        || !listeners.iter().all(|it| is_kept(it, &after.listeners))
        || *http3 && is_tcp_changed()
}

/// HTTP listeners of a port share a filter chain, and their hostnames are in route tables.
fn is_kept(listener: &Listener, others: &[Listener]) -> bool {
    if listener.protocol() == Protocol::Http {
        others.iter().any(|it| it.protocol() == Protocol::Http)
    } else {
        others.contains(listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Edge, L4Route};

    fn listener(name: &str, protocol: Protocol) -> Listener {
        Listener {
            name: name.to_owned(),
            protocol: protocol.into(),
            ..Listener::default()
        }
    }

    fn port(port: u32, listeners: &[Listener]) -> Port {
        Port {
            port,
            listeners: listeners.to_vec(),
            ..Port::default()
        }
    }

    #[test]
    fn changed_ports_drain_and_others_do_not() {
        let (http, https) = (
            listener("a", Protocol::Http),
            listener("b", Protocol::Https),
        );
        let tls = listener("c", Protocol::Tls);
        let quic = Port {
            transport: Transport::Udp.into(),
            http3: true,
            ..port(443, &[])
        };
        let old = Snapshot {
            ports: vec![port(80, &[http]), port(443, &[https, tls]), quic],
            ..Snapshot::default()
        };
        let drained = |change: &dyn Fn(&mut Snapshot)| {
            let mut new = old.clone();
            change(&mut new);
            let ports = ports(&old, &new).into_iter();
            ports
                .map(|(transport, port)| format!("{port}/{}", transport.as_str_name()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let https_ports = "443/TCP 443/UDP";
        assert_eq!(drained(&|_| {}), "");
        assert_eq!(
            drained(&|new| new.edge = Some(Edge::default())),
            format!("80/TCP {https_ports}")
        );
        let own = Some(Edge::default());
        assert_eq!(drained(&|new| new.ports[0].edge = own), "80/TCP");
        assert_eq!(drained(&|new| drop(new.ports.remove(0))), "80/TCP");
        let added = listener("d", Protocol::Tls);
        assert_eq!(
            drained(&|new| new.ports[1].listeners.push(added.clone())),
            ""
        );
        assert_eq!(
            drained(&|new| new.ports[0].listeners[0].hostname = "a.test".to_owned()),
            ""
        );
        assert_eq!(
            drained(&|new| new.ports[1].listeners[1].l4_routes = vec![L4Route::default()]),
            https_ports
        );
        assert_eq!(drained(&|new| new.ports[2].http3 = false), "443/UDP");
    }
}
