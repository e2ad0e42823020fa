//! Encodes and decodes the content of an xDS file: one `DiscoveryResponse`.
//!
//! Resources remain encoded, because decoding thousands of clusters is slow. Files that are read
//! back from disk are untrusted: a file is parsed completely or not at all.

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};

use super::XdsKind;
use crate::Resource;

const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

/// `envoy.service.discovery.v3.DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    version_info: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<AnyResource>,
    #[prost(bytes = "bytes", tag = "4")]
    type_url: Bytes,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct AnyResource {
    #[prost(bytes = "bytes", tag = "1")]
    type_url: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The name is field 1 in all resource types (`cluster_name` in a ClusterLoadAssignment).
#[derive(Clone, PartialEq, Message)]
struct NamedResource {
    #[prost(string, tag = "1")]
    name: String,
}

/// Part of `envoy.config.listener.v3.Listener`.
#[derive(Clone, PartialEq, Message)]
struct ListenerAddresses {
    #[prost(bytes = "bytes", optional, tag = "2")]
    address: Option<Bytes>,
    #[prost(message, repeated, tag = "33")]
    additional_addresses: Vec<AdditionalAddress>,
}

/// `envoy.config.listener.v3.AdditionalAddress`.
#[derive(Clone, PartialEq, Message)]
struct AdditionalAddress {
    #[prost(bytes = "bytes", optional, tag = "1")]
    address: Option<Bytes>,
}

/// Encoded xDS file and its version.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedFile {
    /// Digest of the content, which Envoy reports as `version_text` once it has accepted the file.
    pub version: String,
    /// Encoded `DiscoveryResponse`.
    pub bytes: Vec<u8>,
}

/// Returns the first 32 hexadecimal digits of a digest of the type and the resources, which contain
/// their names.
pub fn version(kind: XdsKind, resources: &[Resource]) -> String {
    let mut hash = Sha256::new();
    hash.update(kind.type_url().as_bytes());
    for resource in resources {
        hash.update((resource.bytes.len() as u64).to_be_bytes());
        hash.update(&resource.bytes);
    }
    hex16(&hash.finalize())
}

/// Encodes the resources in the given order as one file.
pub fn encode(kind: XdsKind, resources: &[Resource]) -> EncodedFile {
    response(kind.type_url(), version(kind, resources), resources)
}

/// Encodes the runtime file (RTDS), which contains traffic shares.
pub fn encode_shares(runtime: &Bytes) -> EncodedFile {
    let resource = Resource {
        name: String::new(),
        bytes: runtime.clone(),
    };
    response(RUNTIME, hex16(&Sha256::digest(runtime)), &[resource])
}

/// Encodes the file with the members of the fleet's cluster.
pub fn encode_members(members: Bytes) -> EncodedFile {
    let resource = Resource {
        name: String::new(),
        bytes: members,
    };
    encode(XdsKind::Endpoints, &[resource])
}

fn response(url: &'static str, version: String, resources: &[Resource]) -> EncodedFile {
    let type_url = Bytes::from_static(url.as_bytes());
    let any = |resource: &Resource| AnyResource {
        type_url: type_url.clone(),
        value: resource.bytes.clone(),
    };
    let response = Response {
        version_info: version,
        resources: resources.iter().map(any).collect(),
        type_url: type_url.clone(),
    };
    EncodedFile {
        bytes: response.encode_to_vec(),
        version: response.version_info,
    }
}

/// Content of a file that [`encode`] wrote.
pub struct DecodedFile {
    /// Verified against the content.
    pub version: String,
    /// Resources in the file's order, still encoded.
    pub resources: Vec<Resource>,
}

/// Returns `None` for any file that [`encode`] did not write.
pub fn decode(kind: XdsKind, file: &Bytes) -> Option<DecodedFile> {
    let response = Response::decode(file.clone()).ok()?;
    let is_of_kind = |url: &Bytes| url == kind.type_url();
    // Unknown fields make the file longer than its re-encoding.
    if response.encoded_len() != file.len() || !is_of_kind(&response.type_url) {
        return None;
    }
    let resource = |any: AnyResource| {
        let NamedResource { name } = NamedResource::decode(any.value.clone()).ok()?;
        is_of_kind(&any.type_url).then_some(Resource {
            name,
            bytes: any.value,
        })
    };
    let resources: Vec<Resource> = response
        .resources
        .into_iter()
        .map(resource)
        .collect::<Option<_>>()?;
    let version = response.version_info;
    (version == self::version(kind, &resources)).then_some(DecodedFile { version, resources })
}

/// Returns no addresses if the listener cannot be decoded.
pub fn listener_addresses(listener: &Bytes) -> Vec<Bytes> {
    let ListenerAddresses {
        address,
        additional_addresses,
    } = ListenerAddresses::decode(listener.clone()).unwrap_or_default();
    let additional = additional_addresses.into_iter();
    let additional = additional.filter_map(|additional| additional.address);
    address.into_iter().chain(additional).collect()
}

fn hex16(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(32);
    for byte in digest.iter().take(16) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
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
        let file = encode(XdsKind::Clusters, &resources);
        let response = DiscoveryResponse::decode(file.bytes.as_slice()).unwrap();
        assert_eq!(response.version_info, file.version);
        assert_eq!(response.type_url, XdsKind::Clusters.type_url());
        assert_eq!(response.resources.len(), 2);
        assert!(
            response
                .resources
                .iter()
                .all(|any| any.type_url == XdsKind::Clusters.type_url())
        );
        assert_eq!(response.resources[1].value, resources[1].bytes);
        assert_eq!(response.encode_to_vec(), file.bytes);
    }

    #[test]
    fn response_file_reads_back_and_damage_is_refused() {
        let resources = vec![cluster("a"), cluster("b")];
        let file = encode(XdsKind::Clusters, &resources);
        let bytes = Bytes::from(file.bytes.clone());
        let back = decode(XdsKind::Clusters, &bytes).unwrap();
        assert_eq!((back.version, back.resources), (file.version, resources));
        assert!(decode(XdsKind::Listeners, &bytes).is_none());
        for cut in 0..bytes.len() {
            assert!(
                decode(XdsKind::Clusters, &bytes.slice(..cut)).is_none(),
                "cut at {cut}"
            );
        }
        let mut altered = file.bytes;
        let middle = altered.len() / 2;
        altered[middle] ^= 1;
        assert!(decode(XdsKind::Clusters, &altered.into()).is_none());
    }

    #[test]
    fn listener_addresses_are_found_without_decoding() {
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
            prop_assert!(decode(XdsKind::Clusters, &junk).is_none());
            let _ = listener_addresses(&junk);
        }
    }
}
