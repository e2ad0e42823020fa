//! Reads and patches encoded route tables without decoding virtual hosts.
//!
//! Functions return `None` if the encoding is unexpected. The caller then rebuilds the snapshot.

use std::collections::HashMap;

use prost::Message as _;

use crate::delta::{ChangedHost, RouteTableDelta};
use crate::refusal;
use crate::schema::route::Action;
use crate::schema::{DirectResponse, RouteTable, VirtualHost};
use crate::wire::numbers::route_table::{self, VIRTUAL_HOSTS};
use crate::wire::numbers::{snapshot, virtual_host};
use crate::wire::{append, append_message, contents, each, first};

/// An encoded route table.
#[derive(Debug)]
pub struct EncodedTable<'a> {
    /// Table name.
    pub name: &'a str,
    /// Virtual hosts, in order.
    pub hosts: Vec<EncodedHost<'a>>,
}

/// An encoded virtual host.
#[derive(Debug, PartialEq)]
pub struct EncodedHost<'a> {
    /// Domain.
    pub domain: &'a str,
    /// Encoded virtual host.
    pub bytes: &'a [u8],
}

impl<'a> EncodedTable<'a> {
    /// Returns the domains in order.
    pub fn domains(&self) -> impl Iterator<Item = &'a str> {
        self.hosts.iter().map(|host| host.domain)
    }
}

pub(super) fn tables(encoded: &[u8]) -> Option<Vec<EncodedTable<'_>>> {
    let tables = contents(encoded, snapshot::ROUTE_TABLES)?;
    let table = |table| {
        let (mut name, mut hosts) = ("", Vec::new());
        each(table, |field, bytes| {
            match field {
                route_table::NAME => name = std::str::from_utf8(bytes).ok()?,
                VIRTUAL_HOSTS => hosts.push(host(bytes)?),
                _ => return None,
            }
            Some(())
        })?;
        Some(EncodedTable { name, hosts })
    };
    tables.into_iter().map(table).collect()
}

fn host(bytes: &[u8]) -> Option<EncodedHost<'_>> {
    let (field, domain, _) = first(bytes)?;
    let domain = std::str::from_utf8(domain).ok()?;
    (field == virtual_host::DOMAIN).then_some(EncodedHost { domain, bytes })
}

pub(super) fn begin(name: &str, content: &mut Vec<u8>) {
    content.clear();
    if !name.is_empty() {
        append(route_table::NAME, name.as_bytes(), content);
    }
}

/// Returns `None` unless each changed virtual host occurs once and equals its previous version.
pub(super) fn patch(encoded: &[u8], delta: &RouteTableDelta) -> Option<Vec<u8>> {
    // `None` means that the virtual host has already been replaced.
    let mut changed: HashMap<(&str, &str), Option<&ChangedHost>> = HashMap::new();
    for host in delta.hosts() {
        let place = (host.table.as_str(), host.before.domain.as_str());
        if changed.insert(place, Some(host)).is_some() {
            return None;
        }
    }
    let mut bytes = Vec::with_capacity(encoded.len() + encoded.len() / 64);
    // There is usually only one table, so reserve space for the bytes of all tables.
    let mut content = Vec::with_capacity(bytes.capacity());
    for EncodedTable { name, hosts } in tables(encoded)? {
        begin(name, &mut content);
        for EncodedHost { domain, bytes } in hosts {
            match changed.get_mut(&(name, domain)) {
                Some(host) => {
                    let ChangedHost { before, after, .. } = host.take()?;
                    if before.encode_to_vec() != bytes {
                        return None;
                    }
                    append_message(VIRTUAL_HOSTS, after, &mut content);
                }
                None => append(VIRTUAL_HOSTS, bytes, &mut content),
            }
        }
        append(snapshot::ROUTE_TABLES, &content, &mut bytes);
    }
    changed.values().all(Option::is_none).then_some(bytes)
}

pub(super) fn hostnames(table: &RouteTable) -> usize {
    table
        .virtual_hosts
        .iter()
        .filter(|it| is_served(it))
        .count()
}

/// Returns false if the virtual host only responds with 421.
pub(super) fn is_served(host: &VirtualHost) -> bool {
    let [route] = host.routes.as_slice() else {
        return true;
    };
    let misdirected = DirectResponse::new(refusal::MISDIRECTED);
    route.action != Some(Action::DirectResponse(misdirected))
}
