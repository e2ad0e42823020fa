//! Rejects an encoded message that would take too much memory, before any value is built.
//!
//! Decoding can multiply the size by a hundred, and decompression by a thousand. Values are not
//! validated, so decoding can still fail.
//!
//! Also rejects snapshots with fields or values outside this schema. Otherwise, an older reader
//! could ignore a new security setting and serve the route unprotected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use prost::bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use crate::schema::{BundleHeader, DESCRIPTORS, Manifest, SIZES, SealedKeys, Snapshot};

/// Overhead of a heap allocation in bytes.
const ALLOCATION: u64 = 16;
/// Ratio of a list's capacity to its length, at worst.
const GROWTH: u64 = 2;
/// Assumed size in bytes if a message's size is unknown.
const UNKNOWN_SIZE: usize = 4096;
/// Maximum decoded size of a manifest in bytes. A manifest with the maximum number of shards takes
/// half as much.
const MAX_MANIFEST: u64 = 2 * 1024 * 1024;
const MAX_BUNDLE_HEADER: u64 = 2 * 1024 * 1024;
const MAX_SEALED_KEYS: u64 = 32 * 1024 * 1024;

/// Error when decoding within limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// Decoding would take too much memory.
    #[error("would exceed the limit of {limit} bytes of memory once decoded")]
    TooMuch {
        /// Limit in bytes.
        limit: u64,
    },
    /// A newer writer used a field or value that is not in this schema.
    #[error(
        "{message} has {what}, which this version of Sesame does not support and must not ignore; \
        use a version as new as the writer's"
    )]
    Unknown {
        /// Name of the message.
        message: String,
        /// Field or value.
        what: String,
    },
    /// Not a valid message of this type.
    #[error("cannot be decoded: {0}")]
    Malformed(#[from] DecodeError),
}

/// Decodes a snapshot or a part of it, and returns its size in memory. Fails if the size exceeds
/// `limit` bytes, or if the schema lacks a field or value.
pub fn snapshot(bytes: &[u8], limit: u64) -> Result<(Snapshot, u64), BoundsError> {
    let size = size_of_snapshot(bytes, limit)?;
    Ok((Snapshot::decode(bytes)?, size))
}

/// Decodes a manifest within its memory limit.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, BoundsError> {
    Ok(decode(&SHAPES.manifest, bytes, MAX_MANIFEST)?.0)
}

pub(crate) fn bundle_header(bytes: &[u8]) -> Result<BundleHeader, BoundsError> {
    Ok(decode(&SHAPES.bundle_header, bytes, MAX_BUNDLE_HEADER)?.0)
}

pub(crate) fn sealed_keys(bytes: &[u8]) -> Result<SealedKeys, BoundsError> {
    Ok(decode(&SHAPES.sealed_keys, bytes, MAX_SEALED_KEYS)?.0)
}

pub(crate) fn size_of_snapshot(bytes: &[u8], limit: u64) -> Result<u64, BoundsError> {
    SHAPES.snapshot.measure(bytes, limit, Unknown::Refused)
}

pub(crate) fn decode<M: Message + Default>(
    shape: &Shape,
    bytes: &[u8],
    limit: u64,
) -> Result<(M, u64), BoundsError> {
    let size = shape.measure(bytes, limit, Unknown::PassedOver)?;
    Ok((M::decode(bytes)?, size))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    Refused,
    PassedOver,
}

#[derive(Debug)]
pub(crate) struct Shape {
    name: String,
    /// Size in bytes of a decoded value, excluding heap allocations.
    size: u64,
    fields: BTreeMap<u32, Field>,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) of: FieldKind,
    pub(crate) repeated: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum FieldKind {
    Text,
    Numbers,
    Number,
    Value(Arc<BTreeSet<i32>>),
    Message(Arc<Shape>),
}

struct Shapes {
    snapshot: Arc<Shape>,
    manifest: Arc<Shape>,
    bundle_header: Arc<Shape>,
    sealed_keys: Arc<Shape>,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap_or_default();
    let shape = |name: &str| {
        let message = pool.get_message_by_name(&format!("sesame.snapshot.v1alpha1.{name}"));
        // If the message has no descriptor, reject every field.
        Arc::new(message.map_or(Shape::new(name, usize::MAX, []), |message| {
            Shape::of(&message)
        }))
    };
    Shapes {
        snapshot: shape("Snapshot"),
        manifest: shape("Manifest"),
        bundle_header: shape("BundleHeader"),
        sealed_keys: shape("SealedKeys"),
    }
});

impl Shape {
    pub(crate) fn new(
        name: &str,
        size: usize,
        fields: impl IntoIterator<Item = (u32, Field)>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            size: size as u64,
            fields: fields.into_iter().collect(),
        }
    }

    /// Terminates because no message in the schema contains itself.
    fn of(message: &MessageDescriptor) -> Self {
        let size = SIZES.iter().find(|(name, _)| *name == message.name());
        let fields = message.fields().map(|field| {
            let repeated = field.is_list();
            let of = match field.kind() {
                Kind::String | Kind::Bytes => FieldKind::Text,
                Kind::Message(inner) => FieldKind::Message(Arc::new(Self::of(&inner))),
                _ if repeated => FieldKind::Numbers,
                Kind::Enum(values) => {
                    let known = values.values().map(|value| value.number());
                    FieldKind::Value(Arc::new(known.collect()))
                }
                _ => FieldKind::Number,
            };
            (field.number(), Field { of, repeated })
        });
        let size = size.map_or(UNKNOWN_SIZE, |(_, size)| *size);
        Self::new(message.name(), size, fields)
    }

    fn measure(&self, bytes: &[u8], limit: u64, unknown: Unknown) -> Result<u64, BoundsError> {
        let mut budget = Budget {
            limit,
            left: limit,
            unknown,
        };
        budget.spend(self.size)?;
        budget.message(self, bytes)?;
        Ok(limit - budget.left)
    }
}

struct Budget {
    limit: u64,
    left: u64,
    unknown: Unknown,
}

impl Budget {
    fn spend(&mut self, size: u64) -> Result<(), BoundsError> {
        let limit = self.limit;
        self.left = self
            .left
            .checked_sub(size)
            .ok_or(BoundsError::TooMuch { limit })?;
        Ok(())
    }

    fn message(&mut self, shape: &Shape, mut bytes: &[u8]) -> Result<(), BoundsError> {
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes)?;
            let length = match wire {
                WireType::Varint => {
                    let value = decode_varint(&mut bytes)?;
                    self.number(shape, number, Some(value))?;
                    continue;
                }
                WireType::SixtyFourBit => 8,
                WireType::ThirtyTwoBit => 4,
                WireType::LengthDelimited => decode_varint(&mut bytes)?,
                WireType::StartGroup | WireType::EndGroup => return Err(malformed()),
            };
            let length = usize::try_from(length).map_err(|_| malformed())?;
            let content = bytes.get(..length).ok_or_else(malformed)?;
            bytes.advance(length);
            match wire {
                WireType::LengthDelimited => self.field(shape, number, content)?,
                _ => self.number(shape, number, None)?,
            }
        }
        Ok(())
    }

    fn field(&mut self, shape: &Shape, number: u32, content: &[u8]) -> Result<(), BoundsError> {
        let Some(Field { of, repeated }) = shape.fields.get(&number) else {
            return self.not_known(shape, || format!("field {number}"));
        };
        match of {
            FieldKind::Text => {
                let element = if *repeated { size_of::<String>() } else { 0 } as u64;
                self.spend(GROWTH * element + ALLOCATION + content.len() as u64)
            }
            // Each byte encodes at most one number.
            FieldKind::Numbers => {
                self.spend(GROWTH * content.len() as u64 * size_of::<u64>() as u64)
            }
            // The wire type is wrong for this field, so the decoder will reject the message.
            FieldKind::Number | FieldKind::Value(_) => Ok(()),
            FieldKind::Message(inner) => {
                // A message outside a list may be boxed, which requires an allocation.
                self.spend(if *repeated {
                    GROWTH.saturating_mul(inner.size)
                } else {
                    ALLOCATION.saturating_add(inner.size)
                })?;
                self.message(inner, content)
            }
        }
    }

    fn number(
        &mut self,
        shape: &Shape,
        number: u32,
        value: Option<u64>,
    ) -> Result<(), BoundsError> {
        let Some(Field { of, .. }) = shape.fields.get(&number) else {
            return self.not_known(shape, || format!("field {number}"));
        };
        match of {
            FieldKind::Number => Ok(()),
            FieldKind::Value(known) => {
                let value = value.and_then(|value| i32::try_from(value).ok());
                if value.is_some_and(|value| known.contains(&value)) {
                    return Ok(());
                }
                self.not_known(shape, || format!("an unknown value in field {number}"))
            }
            FieldKind::Text | FieldKind::Numbers | FieldKind::Message(_) => {
                self.spend(GROWTH * size_of::<u64>() as u64)
            }
        }
    }

    fn not_known(&self, shape: &Shape, what: impl FnOnce() -> String) -> Result<(), BoundsError> {
        match self.unknown {
            Unknown::PassedOver => Ok(()),
            Unknown::Refused => Err(BoundsError::Unknown {
                message: shape.name.clone(),
                what: what(),
            }),
        }
    }
}

/// The decoder would also reject such input.
fn malformed() -> BoundsError {
    #[allow(clippy::unwrap_used, reason = "an empty buffer contains no varint")]
    BoundsError::Malformed(decode_varint(&mut [].as_slice()).unwrap_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{
        Cors, Endpoint, EndpointSet, ExternalAuth, HeaderModifier, Route, RouteTable, VirtualHost,
    };
    use crate::wire::numbers;

    #[test]
    fn every_message_has_size_and_lists_are_counted() {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        for message in pool.all_messages() {
            let shape = Shape::of(&message);
            assert_ne!(shape.size, UNKNOWN_SIZE as u64, "{}", message.name());
            for field in message
                .fields()
                .filter(prost_reflect::FieldDescriptor::is_list)
            {
                let counted = shape.fields.get(&field.number());
                assert!(
                    counted.is_some_and(|field| field.repeated),
                    "{}",
                    field.full_name()
                );
            }
        }
    }

    #[test]
    fn empty_encoded_messages_count_their_decoded_size() {
        let many = Snapshot {
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "*".to_owned(),
                    routes: vec![Route::default(); 1000],
                    ..VirtualHost::default()
                }],
            }],
            ..Snapshot::default()
        };
        let bytes = many.encode_to_vec();
        let (decoded, size) = snapshot(&bytes, 1 << 24).unwrap();
        assert_eq!(decoded, many);
        let least = 1000 * size_of::<Route>() as u64;
        assert!(size > least && size < 3 * least, "{size} of {least}");
        let limit = size - 1;
        let refused = snapshot(&bytes, limit).unwrap_err();
        assert_eq!(refused, BoundsError::TooMuch { limit });
        assert!(refused.to_string().contains(&limit.to_string()));
    }

    #[test]
    fn boxed_fields_are_counted() {
        let route = Route {
            request_headers: Some(Box::default()),
            response_headers: Some(Box::default()),
            cors: Some(Box::default()),
            external_auth: vec![ExternalAuth::default()],
            ..Route::default()
        };
        let size_with = |route: Route| {
            let many = Snapshot {
                route_tables: vec![RouteTable {
                    virtual_hosts: vec![VirtualHost {
                        routes: vec![route; 1000],
                        ..VirtualHost::default()
                    }],
                    ..RouteTable::default()
                }],
                ..Snapshot::default()
            };
            snapshot(&many.encode_to_vec(), 1 << 24).unwrap().1
        };
        let pointed =
            2 * size_of::<HeaderModifier>() + size_of::<Cors>() + size_of::<ExternalAuth>();
        let more = size_with(route) - size_with(Route::default());
        assert!(more >= 1000 * pointed as u64, "{more} of {pointed}");
    }

    #[test]
    fn endpoints_cost_few_times_their_encoded_size() {
        let set = EndpointSet {
            name: "Service/default/web/80".to_owned(),
            endpoints: (0..1000)
                .map(|port| Endpoint {
                    address: "10.100.200.30".to_owned(),
                    port,
                    ..Endpoint::default()
                })
                .collect(),
            ..EndpointSet::default()
        };
        let bytes = Snapshot {
            endpoints: vec![set],
            ..Snapshot::default()
        }
        .encode_to_vec();
        let (_, size) = snapshot(&bytes, 1 << 24).unwrap();
        assert!(size < 6 * bytes.len() as u64, "{size} of {}", bytes.len());
    }

    #[test]
    fn newer_schema_fields_and_values_are_refused_everywhere() {
        let route = |more: &[u8]| {
            let mut route = Route {
                name: "HTTPRoute/default/a/rules/0/matches/0".to_owned(),
                ..Route::default()
            }
            .encode_to_vec();
            route.extend(more);
            let (mut host, mut table, mut all) = (Vec::new(), Vec::new(), Vec::new());
            crate::wire::append(numbers::virtual_host::ROUTES, &route, &mut host);
            crate::wire::append(numbers::route_table::VIRTUAL_HOSTS, &host, &mut table);
            crate::wire::append(numbers::snapshot::ROUTE_TABLES, &table, &mut all);
            all
        };
        assert!(snapshot(&route(&[]), 1 << 20).is_ok());
        // Field 500 encoded as a varint, as bytes, and as a 32-bit number.
        for more in [
            &[0xa0, 0x1f, 1][..],
            &[0xa2, 0x1f, 1, b'a'],
            &[0xa5, 0x1f, 0, 0, 0, 0],
        ] {
            let error = snapshot(&route(more), 1 << 20).unwrap_err();
            assert!(
                error.to_string().starts_with("Route has field 500"),
                "{error}"
            );
        }
        let mut backend = Vec::new();
        let protocol = u8::try_from(numbers::backend::PROTOCOL).unwrap();
        crate::wire::append(
            numbers::snapshot::BACKENDS,
            &[protocol << 3, 99],
            &mut backend,
        );
        let error = snapshot(&backend, 1 << 20).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("Backend has an unknown value"),
            "{error}"
        );
    }

    #[test]
    fn truncated_bytes_and_groups_are_malformed() {
        let whole = Snapshot {
            gateway: "Gateway/default/edge".to_owned(),
            ..Snapshot::default()
        }
        .encode_to_vec();
        for bytes in [
            &whole[..5],
            &[0xff],
            &[0x0b, 0x0c],
            &[0x22, 0xff, 0xff, 0xff, 0xff, 0x0f],
        ] {
            let error = snapshot(bytes, 1 << 20).unwrap_err();
            assert!(
                matches!(error, BoundsError::Malformed(_)),
                "{bytes:?}: {error}"
            );
        }
    }
}
