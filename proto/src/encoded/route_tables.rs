//! Route tables in an encoded snapshot, read and patched without being decoded.
//!
//! It must never guess: where the bytes are not as expected there is no outcome, and the caller makes the whole anew.

use std::collections::HashMap;

use crate::schema::VirtualHost;
use crate::wire::numbers::route_table::{self, VIRTUAL_HOSTS};
use crate::wire::numbers::{snapshot, virtual_host};
use crate::wire::{append, append_messages, contents, each, first};

/// An encoded route table.
#[derive(Debug)]
pub struct EncodedTable<'a> {
    /// The table's name.
    pub name: &'a str,
    /// The table's virtual hosts, in their order.
    pub hosts: Vec<EncodedHost<'a>>,
}

/// An encoded virtual host.
#[derive(Debug, PartialEq)]
pub struct EncodedHost<'a> {
    /// The virtual host's domain.
    pub domain: &'a str,
    /// The whole virtual host.
    pub bytes: &'a [u8],
}

impl<'a> EncodedTable<'a> {
    /// Returns the domains of the table's virtual hosts, in their order.
    pub fn domains(&self) -> impl Iterator<Item = &'a str> {
        self.hosts.iter().map(|host| host.domain)
    }
}

/// Returns the tables of an encoded snapshot that holds nothing else.
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

/// Returns the tables with these virtual hosts, each in the place of the one of its domain in the table of that name; none
/// where there is no such place, or two.
pub(super) fn patch(encoded: &[u8], hosts: &[(String, VirtualHost)]) -> Option<Vec<u8>> {
    // None stands for a host that has found its place.
    let mut changed: HashMap<(&str, &str), Option<&VirtualHost>> =
        HashMap::with_capacity(hosts.len());
    for (table, host) in hosts {
        if changed.insert((table, &host.domain), Some(host)).is_some() {
            return None;
        }
    }
    let mut bytes = Vec::with_capacity(encoded.len() + encoded.len() / 64);
    let mut content = Vec::new();
    for EncodedTable { name, hosts } in tables(encoded)? {
        content.clear();
        if !name.is_empty() {
            append(route_table::NAME, name.as_bytes(), &mut content);
        }
        for EncodedHost { domain, bytes } in hosts {
            match changed.get_mut(&(name, domain)) {
                Some(host) => append_messages(VIRTUAL_HOSTS, [host.take()?], &mut content),
                None => append(VIRTUAL_HOSTS, bytes, &mut content),
            }
        }
        append(snapshot::ROUTE_TABLES, &content, &mut bytes);
    }
    changed.values().all(Option::is_none).then_some(bytes)
}
