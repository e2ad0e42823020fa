//! Route tables as they are encoded in a snapshot: taken apart, and put together with other virtual hosts.
//!
//! A table of thousands changes by a host or two, and to decode and encode the others is most of the work of such a
//! change. Where anything is not as expected there is no outcome, and the whole is made anew.

use std::collections::HashMap;

use prost::encoding::{self, WireType, decode_key, decode_varint, encode_key, encode_varint};
use sesame_proto::schema::VirtualHost;

/// `Snapshot.route_tables`, `RouteTable.name`, `RouteTable.virtual_hosts` and `VirtualHost.domain`.
pub(super) const TABLES: u32 = 4;
const NAME: u32 = 1;
const HOSTS: u32 = 2;
const DOMAIN: u32 = 1;

/// A table.
pub(crate) struct Table<'a> {
    pub(crate) name: &'a str,
    pub(crate) hosts: Vec<Host<'a>>,
}

/// A virtual host.
#[derive(PartialEq)]
pub(crate) struct Host<'a> {
    pub(crate) domain: &'a str,
    /// All of it.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Table<'a> {
    /// The domains of its hosts, in their order.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &'a str> {
        self.hosts.iter().map(|host| host.domain)
    }
}

/// The tables of an encoded snapshot that holds nothing else.
pub(crate) fn tables(snapshot: &[u8]) -> Option<Vec<Table<'_>>> {
    let tables = fields(snapshot, TABLES)?;
    let table = |table| {
        let (mut name, mut hosts) = ("", Vec::new());
        each(table, |field, bytes| {
            match field {
                NAME => name = std::str::from_utf8(bytes).ok()?,
                HOSTS => hosts.push(host(bytes)?),
                _ => return None,
            }
            Some(())
        })?;
        Some(Table { name, hosts })
    };
    tables.into_iter().map(table).collect()
}

fn host(bytes: &[u8]) -> Option<Host<'_>> {
    let (field, domain, _) = first(bytes)?;
    let domain = std::str::from_utf8(domain).ok()?;
    (field == DOMAIN).then_some(Host { domain, bytes })
}

/// The same tables with these virtual hosts, each in the place of the one of its domain in the table of that name; none
/// if there is none, or two.
pub(super) fn replace(snapshot: &[u8], hosts: &[(String, VirtualHost)]) -> Option<Vec<u8>> {
    // None is what has found its place.
    let mut others: HashMap<(&str, &str), Option<&VirtualHost>> =
        HashMap::with_capacity(hosts.len());
    for (table, host) in hosts {
        if others.insert((table, &host.domain), Some(host)).is_some() {
            return None;
        }
    }
    let mut bytes = Vec::with_capacity(snapshot.len() + snapshot.len() / 64);
    let mut content = Vec::new();
    for Table { name, hosts } in tables(snapshot)? {
        content.clear();
        if !name.is_empty() {
            append(NAME, name.as_bytes(), &mut content);
        }
        for Host { domain, bytes } in hosts {
            match others.get_mut(&(name, domain)) {
                Some(other) => encoding::message::encode(HOSTS, other.take()?, &mut content),
                None => append(HOSTS, bytes, &mut content),
            }
        }
        append(TABLES, &content, &mut bytes);
    }
    others.values().all(Option::is_none).then_some(bytes)
}

fn append(field: u32, content: &[u8], bytes: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, bytes);
    encode_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

/// All fields of a message; none if there is another.
pub(crate) fn fields(message: &[u8], expected: u32) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    each(message, |field, bytes| {
        found.push(bytes);
        (field == expected).then_some(())
    })?;
    Some(found)
}

fn each<'m>(
    mut message: &'m [u8],
    mut take: impl FnMut(u32, &'m [u8]) -> Option<()>,
) -> Option<()> {
    while !message.is_empty() {
        let (field, bytes, rest) = first(message)?;
        take(field, bytes)?;
        message = rest;
    }
    Some(())
}

/// The first field of a message, whose length comes before it, and what is behind it.
fn first(mut message: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (field, wire) = decode_key(&mut message).ok()?;
    if wire != WireType::LengthDelimited {
        return None;
    }
    let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
    let (bytes, rest) = message.split_at_checked(length)?;
    Some((field, bytes, rest))
}
