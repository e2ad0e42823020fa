//! Builds an encoded snapshot from its shards.
//!
//! To save memory, each piece is encoded before the next one is decoded. The result must equal the
//! encoding of the canonical snapshot.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::route_tables::{begin, is_served};
use super::{Counts, EncodedSnapshot};
use crate::digest::{canonicalize, domain_order};
use crate::schema::{RouteTable, Snapshot};
use crate::wire::{append, appended_len, numbers};

#[derive(Debug, Default)]
pub(crate) struct ConfigBuilder {
    rest: Snapshot,
    tables: BTreeMap<String, Encoded>,
    backends: Encoded,
    hostnames: usize,
}

impl ConfigBuilder {
    pub(crate) fn add(&mut self, piece: Snapshot) {
        let Snapshot {
            gateway,
            addresses,
            ports,
            route_tables,
            backends,
            // Ignore endpoints: the revision does not cover them, so they are not verified.
            endpoints: _,
            keys,
            trust_bundles,
            edge,
            rotation,
            tracing,
            log_output,
            measured_routes,
            rate_limits,
            shared_filters,
            filters,
        } = piece;
        for table in route_tables {
            let RouteTable {
                name,
                virtual_hosts,
            } = table;
            let hosts = self.tables.entry(name).or_default();
            for mut host in virtual_hosts {
                // This piece continues a virtual host that was too large for one piece.
                if let Some((_, bytes)) = hosts.last_mut().filter(|(it, _)| *it == host.domain) {
                    host.domain.clear();
                    host.encode_raw(bytes);
                    continue;
                }
                self.hostnames += usize::from(is_served(&host));
                let bytes = host.encode_to_vec();
                hosts.push((host.domain, bytes));
            }
        }
        let backends = backends.into_iter().map(|backend| {
            let bytes = backend.encode_to_vec();
            (backend.name, bytes)
        });
        self.backends.extend(backends);
        let rest = &mut self.rest;
        if !gateway.is_empty() {
            rest.gateway = gateway;
        }
        rest.addresses.extend(addresses);
        rest.ports.extend(ports);
        rest.keys.extend(keys);
        rest.trust_bundles.extend(trust_bundles);
        rest.edge = rest.edge.or(edge);
        rest.rotation = rest.rotation.or(rotation);
        rest.tracing = rest.tracing.take().or(tracing);
        rest.log_output = rest.log_output.take().or(log_output);
        rest.measured_routes.extend(measured_routes);
        rest.rate_limits.extend(rate_limits);
        rest.shared_filters.extend(shared_filters);
        rest.filters = rest.filters.take().or(filters);
    }

    pub(crate) fn build(self) -> EncodedSnapshot {
        let Self {
            mut rest,
            tables,
            mut backends,
            hostnames,
        } = self;
        canonicalize(&mut rest);
        backends.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut encoded = EncodedSnapshot::new(&rest, Vec::new());
        encoded.counts = Counts {
            listeners: encoded.counts.listeners,
            hostnames,
            backends: backends.len(),
        };
        encoded.parts.route_tables = encode_tables(tables);
        let mut bytes = Vec::new();
        append_all(numbers::snapshot::BACKENDS, backends, &mut bytes);
        encoded.parts.backends = bytes.into();
        encoded
    }
}

type Encoded = Vec<(String, Vec<u8>)>;

fn encode_tables(tables: BTreeMap<String, Encoded>) -> Bytes {
    let mut bytes = Vec::new();
    for (name, mut hosts) in tables {
        hosts.sort_by(|(a, _), (b, _)| domain_order(a).cmp(&domain_order(b)));
        let mut content = Vec::new();
        begin(&name, &mut content);
        append_all(numbers::route_table::VIRTUAL_HOSTS, hosts, &mut content);
        append(numbers::snapshot::ROUTE_TABLES, &content, &mut bytes);
    }
    bytes.shrink_to_fit();
    bytes.into()
}

/// Drops each message immediately to save memory.
fn append_all(field: u32, messages: Encoded, bytes: &mut Vec<u8>) {
    let lengths = messages.iter().map(|(_, it)| appended_len(field, it.len()));
    bytes.reserve_exact(lengths.sum());
    for (_, message) in messages {
        append(field, &message, bytes);
    }
}
