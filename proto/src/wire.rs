//! Reads and writes encoded protobuf messages without decoding their contents.
//!
//! A typical update changes one or two of thousands of routes, and decoding the others would
//! dominate the cost. Contents are not validated; functions return `None` if the encoding is
//! unexpected.

use prost::Message;
use prost::encoding::{self, WireType, decode_key, decode_varint, encode_key, encode_varint};

#[allow(
    dead_code,
    reason = "generated for all fields; few are encoded by hand"
)]
pub(crate) mod numbers {
    include!(concat!(env!("OUT_DIR"), "/numbers.rs"));
}

/// Appends a string, bytes or an encoded message.
pub fn append(field: u32, content: &[u8], bytes: &mut Vec<u8>) {
    append_head(field, content.len(), bytes);
    bytes.extend_from_slice(content);
}

/// Appends what precedes a value of this length.
pub(crate) fn append_head(field: u32, length: usize, bytes: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, bytes);
    encode_varint(length as u64, bytes);
}

pub(crate) fn appended_len(field: u32, length: usize) -> usize {
    encoding::key_len(field) + encoding::encoded_len_varint(length as u64) + length
}

/// Reserves exactly the needed capacity, because these buffers are large.
pub(crate) fn append_messages<'m, M: Message + 'm>(
    field: u32,
    messages: impl IntoIterator<Item = &'m M, IntoIter: Clone>,
    bytes: &mut Vec<u8>,
) {
    let messages = messages.into_iter();
    let lengths = messages
        .clone()
        .map(|it| appended_len(field, it.encoded_len()));
    bytes.reserve_exact(lengths.sum());
    for message in messages {
        encoding::message::encode(field, message, bytes);
    }
}

/// Returns the values of a repeated field, or `None` if there is any other field.
pub fn contents(mut message: &[u8], expected: u32) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let (field, content, rest) = first(message)?;
        if field != expected {
            return None;
        }
        found.push(content);
        message = rest;
    }
    Some(found)
}

/// Returns `None` if the field is not length-delimited.
pub(crate) fn first(mut message: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (field, wire) = decode_key(&mut message).ok()?;
    if wire != WireType::LengthDelimited {
        return None;
    }
    let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
    let (content, rest) = message.split_at_checked(length)?;
    Some((field, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{RouteTable, Snapshot, VirtualHost};

    #[test]
    fn hand_written_encoding_matches_schema() {
        let host = VirtualHost {
            domain: "a.example.com".to_owned(),
            ..VirtualHost::default()
        };
        let table = RouteTable {
            name: "http/80".to_owned(),
            virtual_hosts: vec![host.clone(); 2],
        };
        let snapshot = Snapshot {
            route_tables: vec![table.clone(); 3],
            ..Snapshot::default()
        };
        let (mut tables, mut hosts) = (Vec::new(), Vec::new());
        append(
            numbers::route_table::NAME,
            table.name.as_bytes(),
            &mut hosts,
        );
        append_messages(
            numbers::route_table::VIRTUAL_HOSTS,
            &table.virtual_hosts,
            &mut hosts,
        );
        for _ in 0..3 {
            append(numbers::snapshot::ROUTE_TABLES, &hosts, &mut tables);
        }
        assert_eq!(tables, snapshot.encode_to_vec());
        let found = contents(&tables, numbers::snapshot::ROUTE_TABLES).expect("tables alone");
        assert_eq!(found, vec![&hosts[..]; 3]);
        assert_eq!(contents(&tables, numbers::snapshot::BACKENDS), None);
        assert_eq!(
            contents(&tables[1..], numbers::snapshot::ROUTE_TABLES),
            None
        );
        let (field, domain, _) = first(&host.encode_to_vec())
            .map(|(field, content, rest)| (field, content.to_vec(), rest.len()))
            .expect("a domain");
        assert_eq!(field, numbers::virtual_host::DOMAIN);
        assert_eq!(domain, host.domain.as_bytes());
    }
}
