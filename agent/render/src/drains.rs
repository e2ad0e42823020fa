//! Connections that a change of listeners drains.
//!
//! Envoy keeps a listener if only its filter chains differ, and then drains the changed ones. Any
//! other difference replaces the listener.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message as _;

use sesame_proto::schema::{Port, Transport};

use crate::context::RenderOptions;
use crate::rendered::{Rendered, Resource};
use crate::xds::parse_listener_name;

/// A listener whose connections drain, or some of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainedListener {
    /// `tcp/ADDRESS/PORT` or `udp/ADDRESS/PORT`, with the port that hosts open.
    pub name: String,
    /// Names of the drained filter chains, such as `Gateway/namespace/name/listeners/https`; empty
    /// for all of them.
    pub chains: Vec<String>,
}

/// A port whose connections drain, or some of them, on all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainedPort {
    /// Transport protocol.
    pub transport: Transport,
    /// The port that clients use.
    pub port: u32,
    /// Names of the drained filter chains; empty if all connections drain.
    pub chains: BTreeSet<String>,
}

impl DrainedPort {
    /// Returns true if the port's connections include those that Envoy counts under this protocol.
    pub fn counts(&self, port: u32, protocol: &str) -> bool {
        let is_udp = matches!(protocol, "http3" | "udp");
        self.port == port && is_udp == (self.transport == Transport::Udp)
    }

    /// Describes how many connections drain, if this many are open.
    pub fn text(&self, open: Option<u64>) -> String {
        match open {
            None => self.to_string(),
            Some(open) if self.chains.is_empty() => format!("{self}: {open} open connections"),
            Some(open) => format!("{self}: up to {open} open connections"),
        }
    }
}

impl fmt::Display for DrainedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (port, transport) = (self.port, self.transport);
        write!(f, "port {port}/{}", transport.as_str_name())?;
        if self.chains.is_empty() {
            return Ok(());
        }
        let chains: Vec<&str> = self.chains.iter().map(String::as_str).collect();
        write!(f, " ({})", chains.join(", "))
    }
}

/// Returns the ports that Envoy drains to replace one rendering with the other. `ports` and
/// `options` belong to the first one.
pub fn drained_ports(
    [before, after]: [&Rendered; 2],
    ports: &[Port],
    options: &RenderOptions,
) -> Vec<DrainedPort> {
    let mut drains: BTreeMap<(Transport, u32), Option<BTreeSet<String>>> = BTreeMap::new();
    for DrainedListener { name, chains } in drained(before, after) {
        let Some((transport, address)) = parse_listener_name(&name) else {
            continue;
        };
        let is_it = |port: &&Port| {
            port.transport() == transport && options.bound(port) == u32::from(address.port())
        };
        let Some(port) = ports.iter().find(is_it) else {
            continue;
        };
        let all = drains.entry((transport, port.port));
        let all = all.or_insert_with(|| Some(BTreeSet::new()));
        match all {
            Some(known) if !chains.is_empty() => known.extend(chains),
            _ => *all = None,
        }
    }
    let drains = drains.into_iter();
    drains
        .map(|((transport, port), chains)| DrainedPort {
            transport,
            port,
            chains: chains.unwrap_or_default(),
        })
        .collect()
}

/// Returns the listeners that Envoy drains to replace one rendering with the other, by name.
pub fn drained(before: &Rendered, after: &Rendered) -> Vec<DrainedListener> {
    if std::sync::Arc::ptr_eq(&before.listeners, &after.listeners) {
        return Vec::new();
    }
    let kept: BTreeMap<&str, &Resource> = after
        .listeners
        .iter()
        .map(|it| (it.name.as_str(), it))
        .collect();
    let old = before.listeners.iter();
    old.filter_map(|old| {
        let new = kept.get(old.name.as_str());
        if new.is_some_and(|new| new.bytes == old.bytes) {
            return None;
        }
        let chains = new.and_then(|new| changed_chains(&old.bytes, &new.bytes));
        // A listener that only gains chains drains none.
        let drains = chains.as_ref().is_none_or(|it| !it.is_empty());
        drains.then(|| DrainedListener {
            name: old.name.clone(),
            chains: chains.unwrap_or_default(),
        })
    })
    .collect()
}

/// Returns `None` if the listener itself or all of its chains differ.
fn changed_chains(before: &Bytes, after: &Bytes) -> Option<Vec<String>> {
    let mut before = Listener::decode(&before[..]).ok()?;
    let mut after = Listener::decode(&after[..]).ok()?;
    let old = std::mem::take(&mut before.filter_chains);
    let new = std::mem::take(&mut after.filter_chains);
    if before != after {
        return None;
    }
    let is_whole = !old.iter().any(|chain| new.contains(chain)) && !old.is_empty();
    let changed = old.into_iter().filter(|chain| !new.contains(chain));
    (!is_whole).then(|| changed.map(|chain| chain.name).collect())
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::listener::v3::FilterChain;

    use super::*;

    type TestListener<'l> = (&'l str, bool, &'l [(&'l str, u64)]);

    fn rendered(listeners: &[TestListener<'_>]) -> Rendered {
        let listeners = listeners.iter().map(|(name, reuses, chains)| {
            let chains = chains.iter().map(|(name, seconds)| FilterChain {
                name: (*name).to_owned(),
                transport_socket_connect_timeout: crate::wrappers::milliseconds(*seconds),
                ..FilterChain::default()
            });
            let listener = Listener {
                name: (*name).to_owned(),
                filter_chains: chains.collect(),
                freebind: crate::wrappers::boolean(*reuses),
                ..Listener::default()
            };
            Resource::new(name, &listener)
        });
        Rendered {
            listeners: listeners.collect(),
            ..Rendered::default()
        }
    }

    #[test]
    fn only_changed_chains_and_listeners_drain() {
        let before = rendered(&[
            ("tcp/0.0.0.0/80", true, &[("a", 1)]),
            ("tcp/0.0.0.0/81", true, &[("a", 1)]),
            ("tcp/0.0.0.0/82", true, &[("a", 1), ("b", 1), ("c", 1)]),
            ("tcp/0.0.0.0/83", true, &[("a", 1)]),
            ("tcp/0.0.0.0/84", true, &[("a", 1)]),
        ]);
        let after = rendered(&[
            ("tcp/0.0.0.0/80", true, &[("a", 1)]),
            ("tcp/0.0.0.0/81", false, &[("a", 1)]),
            ("tcp/0.0.0.0/82", true, &[("a", 2), ("b", 1)]),
            ("tcp/0.0.0.0/83", true, &[("a", 1), ("new", 1)]),
            ("tcp/0.0.0.0/85", true, &[("a", 1)]),
        ]);
        let found = drained(&before, &after);
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|it| (&*it.name, it.chains.iter().map(String::as_str).collect()))
            .collect();
        let expected = [
            ("tcp/0.0.0.0/81", vec![]),
            ("tcp/0.0.0.0/82", vec!["a", "c"]),
            ("tcp/0.0.0.0/84", vec![]),
        ];
        assert_eq!(found, expected);
        assert_eq!(drained(&before, &before), []);
    }
    #[test]
    fn drained_ports_are_those_of_clients() {
        let before = rendered(&[
            ("tcp/0.0.0.0/8080", true, &[("a", 1)]),
            ("tcp/127.0.0.1/8080", true, &[("a", 1)]),
            ("tcp/0.0.0.0/8443", true, &[("a", 1), ("b", 1)]),
            ("udp/0.0.0.0/8443", true, &[("a", 1)]),
        ]);
        let after = rendered(&[
            ("tcp/0.0.0.0/8080", false, &[("a", 1)]),
            ("tcp/127.0.0.1/8080", true, &[("a", 2)]),
            ("tcp/0.0.0.0/8443", true, &[("a", 1), ("b", 2)]),
            ("udp/0.0.0.0/8443", true, &[("a", 1)]),
        ]);
        let port = |transport: Transport, port: u32| Port {
            transport: transport.into(),
            port,
            ..Port::default()
        };
        let ports = [
            port(Transport::Tcp, 80),
            port(Transport::Tcp, 443),
            port(Transport::Udp, 443),
        ];
        let options = RenderOptions {
            port_map: [(80, 8080), (443, 8443)].into(),
            ..crate::tests::parts::options()
        };
        let found = drained_ports([&before, &after], &ports, &options);
        let texts: Vec<String> = found.iter().map(|it| it.text(Some(3))).collect();
        let expected = [
            "port 80/TCP: 3 open connections",
            "port 443/TCP (b): up to 3 open connections",
        ];
        assert_eq!(texts, expected);
        assert!(found[1].counts(443, "https") && !found[1].counts(443, "http3"));
        assert_eq!(found[0].text(None), "port 80/TCP");
    }
}
