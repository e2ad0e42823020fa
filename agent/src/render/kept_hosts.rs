//! Route tables in which most virtual hosts are those of before: they are taken over as they were rendered.
//!
//! A table of thousands changes by a host or two, and to decode and render the others is most of the work of such a
//! change. So hosts are compared as they are encoded. Where anything is not as expected there is no outcome, and the
//! whole is rendered.

use std::collections::{BTreeSet, HashMap};

use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use sesame_proto::schema::VirtualHost;

use super::route_tables::{self, VIRTUAL_HOSTS, append, check_domain};
use super::{Context, Problem, Resource};

/// `Snapshot.route_tables`, `RouteTable.name`, `RouteTable.virtual_hosts` and `VirtualHost.domain`.
const TABLES: u32 = 4;
const NAME: u32 = 1;
const HOSTS: u32 = 2;
const DOMAIN: u32 = 1;

/// A table as it is encoded.
struct Table<'a> {
    name: &'a str,
    hosts: Vec<&'a [u8]>,
}

/// Renders the tables of `new`, given those that were rendered of `old` without a problem; both encoded.
pub(super) fn render(
    rendered: &[Resource],
    old: &[u8],
    new: &[u8],
    context: &Context<'_>,
) -> Option<Vec<Resource>> {
    let (old, new) = (tables(old)?, tables(new)?);
    if old.len() != rendered.len() || old.len() != new.len() {
        return None;
    }
    let mut resources = Vec::with_capacity(new.len());
    for ((old, new), rendered) in old.iter().zip(&new).zip(rendered) {
        if old.name != new.name || old.name != rendered.name {
            return None;
        }
        let bytes = table(rendered, old, new, context)?;
        resources.push(Resource {
            name: rendered.name.clone(),
            bytes: bytes.into(),
        });
    }
    Some(resources)
}

fn table(
    rendered: &Resource,
    old: &Table<'_>,
    new: &Table<'_>,
    context: &Context<'_>,
) -> Option<Vec<u8>> {
    let mut bytes = route_tables::head(new.name);
    let hosts = rendered.bytes.strip_prefix(bytes.as_slice())?;
    let kept = fields(hosts, u32::from(VIRTUAL_HOSTS >> 3))?;
    if kept.len() != old.hosts.len() {
        return None;
    }
    let mut known: HashMap<&str, (&[u8], &[u8])> = HashMap::with_capacity(kept.len());
    for (old, kept) in old.hosts.iter().zip(kept) {
        known.insert(domain(old)?, (old, kept));
    }
    bytes.reserve(rendered.bytes.len());
    let mut seen = BTreeSet::new();
    let mut problems: Vec<Problem> = Vec::new();
    let mut host = Vec::new();
    for new in &new.hosts {
        let domain = domain(new)?;
        check_domain(domain, &mut seen).ok()?;
        match known.get(domain) {
            Some((old, kept)) if old == new => append(VIRTUAL_HOSTS, kept, &mut bytes),
            _ => {
                host.clear();
                let virtual_host = VirtualHost::decode(*new).ok()?;
                route_tables::render_host(&virtual_host, context, &mut problems, &mut host);
                append(VIRTUAL_HOSTS, &host, &mut bytes);
            }
        }
    }
    problems.is_empty().then_some(bytes)
}

/// The tables of an encoded snapshot that holds nothing else.
fn tables(snapshot: &[u8]) -> Option<Vec<Table<'_>>> {
    let tables = fields(snapshot, TABLES)?;
    let table = |table| {
        let (mut name, mut hosts) = ("", Vec::new());
        each(table, |field, bytes| {
            match field {
                NAME => name = std::str::from_utf8(bytes).ok()?,
                HOSTS => hosts.push(bytes),
                _ => return None,
            }
            Some(())
        })?;
        Some(Table { name, hosts })
    };
    tables.into_iter().map(table).collect()
}

/// The domain of an encoded virtual host.
fn domain(host: &[u8]) -> Option<&str> {
    let (field, bytes, _) = first(host)?;
    (field == DOMAIN).then(|| std::str::from_utf8(bytes).ok())?
}

/// All fields of a message; none if there is another.
fn fields(message: &[u8], expected: u32) -> Option<Vec<&[u8]>> {
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
