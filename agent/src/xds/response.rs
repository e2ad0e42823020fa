//! The bytes of an xDS file: one `DiscoveryResponse`, built by appending, read by scanning.
//!
//! Resources arrive encoded and leave encoded: five thousand clusters never exist as a tree of structures.
//! What is read back comes from a disk, so nothing here trusts a length or panics.

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};
use sha2::{Digest as _, Sha256};

use super::Kind;
use sesame_render::Resource;

const VERSION_INFO: u32 = 1;
const RESOURCES: u32 = 2;
const TYPE_URL: u32 = 4;
const ANY_TYPE_URL: u32 = 1;
const ANY_VALUE: u32 = 2;
/// `name` (of a CLA `cluster_name`) is field 1 of all five resource types.
const NAME: u32 = 1;
/// `envoy.config.listener.v3.Listener.address`.
const LISTENER_ADDRESS: u32 = 2;
/// `envoy.config.listener.v3.Listener.additional_addresses`, each with its `address` in field 1.
const LISTENER_ADDITIONAL_ADDRESSES: u32 = 33;
const ADDITIONAL_ADDRESS: u32 = 1;

/// An encoded file and the version that it carries.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// What Envoy reports as `version_text` once it accepted the file: a digest of the content.
    pub(crate) version: String,
    /// The file.
    pub(crate) bytes: Vec<u8>,
}

/// The version of a file: 32 hexadecimal digits over its type, names excluded (they are in the bytes).
pub(crate) fn version(kind: Kind, resources: &[Resource]) -> String {
    let mut hash = Sha256::new();
    hash.update(kind.type_url().as_bytes());
    for resource in resources {
        hash.update((resource.bytes.len() as u64).to_be_bytes());
        hash.update(&resource.bytes);
    }
    hex16(&hash.finalize())
}

/// Encodes one file.
pub(crate) fn encode(kind: Kind, resources: &[Resource]) -> Encoded {
    response(kind.type_url(), version(kind, resources), resources)
}

/// Encodes the file of the shares.
pub(crate) fn encode_shares(runtime: &Bytes) -> Encoded {
    let url = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
    let version = hex16(&Sha256::digest(runtime));
    let resource = Resource {
        name: String::new(),
        bytes: runtime.clone(),
    };
    response(url, version, &[resource])
}

fn response(url: &str, version: String, resources: &[Resource]) -> Encoded {
    let body: usize = resources.iter().map(|r| any_len(url, &r.bytes) + 12).sum();
    let mut out = Vec::with_capacity(body + version.len() + url.len() + 16);
    put_bytes(&mut out, VERSION_INFO, version.as_bytes());
    for resource in resources {
        put_key(&mut out, RESOURCES);
        encode_varint(any_len(url, &resource.bytes) as u64, &mut out);
        put_bytes(&mut out, ANY_TYPE_URL, url.as_bytes());
        put_bytes(&mut out, ANY_VALUE, &resource.bytes);
    }
    put_bytes(&mut out, TYPE_URL, url.as_bytes());
    Encoded {
        version,
        bytes: out,
    }
}

/// A file as found on disk.
pub(crate) struct Decoded {
    /// Its version, proven to be the digest of its content.
    pub(crate) version: String,
    /// Its resources, in the order of the file.
    pub(crate) resources: Vec<Resource>,
}

/// Reads a file that [`encode`] wrote; `None` for anything else, also for a file whose digest is wrong.
pub(crate) fn decode(kind: Kind, file: &Bytes) -> Option<Decoded> {
    let mut version_info = None;
    let mut resources = Vec::new();
    let mut url_seen = false;
    for field in Fields::of(file) {
        let (number, value) = field?;
        match number {
            VERSION_INFO => version_info = Some(String::from_utf8(value.to_vec()).ok()?),
            TYPE_URL => url_seen = value == kind.type_url().as_bytes(),
            RESOURCES => {
                let (mut url, mut bytes) = (None, None);
                for field in Fields::of(&value) {
                    match field? {
                        (ANY_TYPE_URL, value) => url = Some(value),
                        (ANY_VALUE, value) => bytes = Some(value),
                        _ => return None,
                    }
                }
                if url? != kind.type_url().as_bytes() {
                    return None;
                }
                let bytes = bytes?;
                resources.push(Resource {
                    name: name(&bytes)?,
                    bytes,
                });
            }
            _ => return None,
        }
    }
    let found = version_info?;
    (url_seen && found == version(kind, &resources)).then_some(Decoded {
        version: found,
        resources,
    })
}

/// The name inside an encoded resource.
fn name(resource: &Bytes) -> Option<String> {
    for field in Fields::of(resource) {
        let (number, value) = field?;
        if number == NAME {
            return String::from_utf8(value.to_vec()).ok();
        }
    }
    None
}

/// The encoded addresses of a listener; fewer where it does not parse.
pub(crate) fn listener_addresses(listener: &Bytes) -> Vec<Bytes> {
    let mut addresses = Vec::new();
    for (number, value) in Fields::of(listener).map_while(|field| field) {
        match number {
            LISTENER_ADDRESS => addresses.push(value),
            LISTENER_ADDITIONAL_ADDRESSES => addresses.extend(
                Fields::of(&value)
                    .map_while(|field| field)
                    .filter_map(|(number, value)| (number == ADDITIONAL_ADDRESS).then_some(value)),
            ),
            _ => {}
        }
    }
    addresses
}

/// Lower-case hexadecimal of the first 16 bytes.
fn hex16(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(32);
    for byte in digest.iter().take(16) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn any_len(url: &str, value: &[u8]) -> usize {
    let part = |len: usize| 1 + encoded_len_varint(len as u64) + len;
    part(url.len()) + part(value.len())
}

fn put_key(out: &mut Vec<u8>, field: u32) {
    encode_varint(u64::from(field << 3 | 2), out);
}

fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_key(out, field);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// The length-delimited fields of a message, others skipped; an item is `None` where it stops to parse.
struct Fields {
    rest: Bytes,
    broken: bool,
}

impl Fields {
    fn of(message: &Bytes) -> Self {
        Self {
            rest: message.clone(),
            broken: false,
        }
    }

    fn take(&mut self, len: u64) -> Option<Bytes> {
        let len = usize::try_from(len).ok()?;
        (len <= self.rest.len()).then(|| self.rest.split_to(len))
    }

    /// Reads one field; `None` where it does not parse.
    fn step(&mut self) -> Option<Field> {
        let key = decode_varint(&mut self.rest).ok()?;
        let number = u32::try_from(key >> 3).ok().filter(|n| *n > 0)?;
        match key & 7 {
            0 => decode_varint(&mut self.rest).ok().map(|_| Field::Other),
            1 => self.take(8).map(|_| Field::Other),
            5 => self.take(4).map(|_| Field::Other),
            2 => {
                let len = decode_varint(&mut self.rest).ok()?;
                self.take(len).map(|value| Field::Bytes(number, value))
            }
            _ => None,
        }
    }
}

enum Field {
    Bytes(u32, Bytes),
    Other,
}

impl Iterator for Fields {
    type Item = Option<(u32, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.broken && !self.rest.is_empty() {
            match self.step() {
                Some(Field::Bytes(number, value)) => return Some(Some((number, value))),
                Some(Field::Other) => {}
                None => {
                    self.broken = true;
                    return Some(None);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use envoy_types::pb::envoy::config::core::v3::{
        Address, SocketAddress, address, socket_address,
    };
    use envoy_types::pb::envoy::config::listener::v3::{AdditionalAddress, Listener};
    use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn cluster(name: &str) -> Resource {
        let message = Cluster {
            name: name.to_owned(),
            alt_stat_name: "other".to_owned(),
            ..Cluster::default()
        };
        Resource {
            name: name.to_owned(),
            bytes: message.encode_to_vec().into(),
        }
    }

    #[test]
    fn a_file_is_what_prost_would_have_encoded() {
        let resources = [cluster("a"), cluster(&"b".repeat(300))];
        let file = encode(Kind::Clusters, &resources);
        let response = DiscoveryResponse::decode(file.bytes.as_slice()).unwrap();
        assert_eq!(response.version_info, file.version);
        assert_eq!(response.type_url, Kind::Clusters.type_url());
        assert_eq!(response.resources.len(), 2);
        assert!(
            response
                .resources
                .iter()
                .all(|any| any.type_url == Kind::Clusters.type_url())
        );
        assert_eq!(response.resources[1].value, resources[1].bytes);
        assert_eq!(response.encode_to_vec(), file.bytes);
    }

    #[test]
    fn a_file_reads_back_and_a_damaged_one_does_not() {
        let resources = vec![cluster("a"), cluster("b")];
        let file = encode(Kind::Clusters, &resources);
        let bytes = Bytes::from(file.bytes.clone());
        let back = decode(Kind::Clusters, &bytes).unwrap();
        assert_eq!((back.version, back.resources), (file.version, resources));
        assert!(decode(Kind::Listeners, &bytes).is_none());
        for cut in 0..bytes.len() {
            assert!(
                decode(Kind::Clusters, &bytes.slice(..cut)).is_none(),
                "cut at {cut}"
            );
        }
        let mut altered = file.bytes;
        let middle = altered.len() / 2;
        altered[middle] ^= 1;
        assert!(decode(Kind::Clusters, &altered.into()).is_none());
    }

    #[test]
    fn the_addresses_of_a_listener_are_found_without_decoding_it() {
        let address = |port| Address {
            address: Some(address::Address::SocketAddress(SocketAddress {
                address: "127.0.0.1".to_owned(),
                port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
                ..SocketAddress::default()
            })),
        };
        let listener = Listener {
            name: "x".to_owned(),
            address: Some(address(80)),
            additional_addresses: vec![AdditionalAddress {
                address: Some(address(81)),
                ..AdditionalAddress::default()
            }],
            ..Listener::default()
        };
        let bytes = Bytes::from(listener.encode_to_vec());
        let expected: Vec<Bytes> = [80, 81].map(|p| address(p).encode_to_vec().into()).into();
        assert_eq!(listener_addresses(&bytes), expected);
    }

    proptest! {
        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
            let junk = Bytes::from(junk);
            prop_assert!(decode(Kind::Clusters, &junk).is_none());
            let _ = listener_addresses(&junk);
        }
    }
}
