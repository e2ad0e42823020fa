//! Differences between two snapshots, for display to users.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use crate::digest::sha256;
use crate::schema::Snapshot;

/// Differences between two lists, with sorted names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameDifference {
    /// Only in the second list.
    pub added: Vec<String>,
    /// Only in the first list.
    pub removed: Vec<String>,
    /// In both lists, with different contents.
    pub changed: Vec<String>,
}

/// Differences between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleDifference {
    /// Listeners by name.
    pub listeners: NameDifference,
    /// Virtual hosts by route table and domain name.
    pub virtual_hosts: NameDifference,
    /// Backends by name.
    pub backends: NameDifference,
    /// Endpoint sets by name.
    pub endpoints: NameDifference,
    /// Key pairs by digest.
    pub keys: NameDifference,
    /// CA certificates by name.
    pub trust_bundles: NameDifference,
    /// True if addresses or client settings differ.
    pub settings: bool,
}

/// Compares two snapshots.
pub fn difference(from: &Snapshot, to: &Snapshot) -> BundleDifference {
    let lists =
        |named: fn(&Snapshot) -> BTreeMap<String, String>| compare(&named(from), &named(to));
    BundleDifference {
        listeners: lists(listeners),
        virtual_hosts: lists(virtual_hosts),
        backends: lists(|snapshot| {
            by_name(snapshot.backends.iter().map(|one| (one.name.as_str(), one)))
        }),
        endpoints: lists(|snapshot| {
            by_name(
                snapshot
                    .endpoints
                    .iter()
                    .map(|one| (one.name.as_str(), one)),
            )
        }),
        keys: lists(|snapshot| by_name(snapshot.keys.iter().map(|one| (one.name.as_str(), one)))),
        trust_bundles: lists(|snapshot| {
            let bundles = snapshot.trust_bundles.iter();
            by_name(bundles.map(|one| (one.name.as_str(), one)))
        }),
        settings: from.addresses != to.addresses
            || http3_ports(from) != http3_ports(to)
            || from.edge != to.edge
            || from.rotation != to.rotation
            || from.tracing != to.tracing
            || from.log_output != to.log_output
            || from.measured_routes != to.measured_routes
            || from.rate_limits != to.rate_limits
            || from.shared_filters != to.shared_filters
            || from.filters != to.filters
            || from.rollout != to.rollout,
    }
}

fn http3_ports(snapshot: &Snapshot) -> BTreeSet<u32> {
    let ports = snapshot.ports.iter().filter(|port| port.http3);
    ports.map(|port| port.port).collect()
}

fn listeners(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let ports = snapshot.ports.iter();
    let listeners = ports.flat_map(|port| {
        let place = format!(
            "{} {} {} {:?} {:?}",
            port.transport, port.port, port.proxy_protocol, port.client_address, port.edge
        );
        let listeners = port.listeners.iter();
        listeners.map(move |one| {
            let content = sha256(&[place.as_bytes(), &one.encode_to_vec()].concat());
            (one.name.clone(), content)
        })
    });
    listeners.collect()
}

fn virtual_hosts(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let tables = snapshot.route_tables.iter();
    let hosts = tables.flat_map(|table| {
        let hosts = table.virtual_hosts.iter();
        hosts.map(move |host| {
            let name = format!("{} {}", table.name, host.domain);
            (name, sha256(&host.encode_to_vec()))
        })
    });
    hosts.collect()
}

fn by_name<'a, M: Message + 'a>(
    all: impl Iterator<Item = (&'a str, &'a M)>,
) -> BTreeMap<String, String> {
    all.map(|(name, one)| (name.to_owned(), sha256(&one.encode_to_vec())))
        .collect()
}

fn compare(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> NameDifference {
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let mut difference = NameDifference::default();
    for name in names {
        let list = match (from.get(name), to.get(name)) {
            (None, _) => &mut difference.added,
            (_, None) => &mut difference.removed,
            (before, after) if before != after => &mut difference.changed,
            _ => continue,
        };
        list.push(name.clone());
    }
    difference
}
