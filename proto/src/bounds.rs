//! The memory that a message takes once it is decoded, counted from its bytes: a message that takes too much is refused
//! before any value is built.
//!
//! An element of a list takes two bytes where it is encoded and a hundred times that as a value, and bytes that repeat
//! compress a thousandfold. So a limit on bytes is no limit on memory. The walk here follows the schema, builds nothing and
//! ends at the first byte that is too much. It vouches for nothing else: a message that it lets through may be malformed.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use prost::bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use crate::schema::{BundleHeader, DESCRIPTORS, Manifest, SIZES, SealedKeys, Snapshot};

/// Bytes that an allocation takes beside its content.
const ALLOCATION: u64 = 16;
/// Factor by which a list may be larger than its content, since lists grow by doubling.
const GROWTH: u64 = 2;
/// Bytes that are counted for a message of unknown size.
const UNKNOWN_SIZE: usize = 4096;
/// Bytes that a manifest may take at most: twice those of one that names as many shards as it may.
const MAX_MANIFEST: u64 = 2 * 1024 * 1024;
/// Bytes that the header of a bundle may take at most, and its sealed keys.
const MAX_BUNDLE_HEADER: u64 = 2 * 1024 * 1024;
const MAX_SEALED_KEYS: u64 = 32 * 1024 * 1024;

/// Reasons for which bytes are not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// The values would be too many or too large.
    #[error("would take more than {limit} bytes of memory once decoded, which is the limit")]
    TooMuch {
        /// The limit in bytes.
        limit: u64,
    },
    /// The bytes are not a message of the schema.
    #[error("cannot be decoded: {0}")]
    Malformed(#[from] DecodeError),
}

/// Decodes a snapshot, or a part of one, that takes no more than `limit` bytes; returns the bytes that it takes, too.
pub fn snapshot(bytes: &[u8], limit: u64) -> Result<(Snapshot, u64), BoundsError> {
    decode(&SHAPES.snapshot, bytes, limit)
}

/// Decodes a manifest, within the limit for all manifests.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, BoundsError> {
    Ok(decode(&SHAPES.manifest, bytes, MAX_MANIFEST)?.0)
}

/// Decodes the header of a bundle, within the limit for all headers.
pub(crate) fn bundle_header(bytes: &[u8]) -> Result<BundleHeader, BoundsError> {
    Ok(decode(&SHAPES.bundle_header, bytes, MAX_BUNDLE_HEADER)?.0)
}

/// Decodes sealed keys, within the limit for all of them.
pub(crate) fn sealed_keys(bytes: &[u8]) -> Result<SealedKeys, BoundsError> {
    Ok(decode(&SHAPES.sealed_keys, bytes, MAX_SEALED_KEYS)?.0)
}

/// Returns the bytes that a snapshot, or a part of one, would take; an error if they are more than `limit`.
pub(crate) fn size_of_snapshot(bytes: &[u8], limit: u64) -> Result<u64, BoundsError> {
    SHAPES.snapshot.measure(bytes, limit)
}

pub(crate) fn decode<M: Message + Default>(
    shape: &Shape,
    bytes: &[u8],
    limit: u64,
) -> Result<(M, u64), BoundsError> {
    let size = shape.measure(bytes, limit)?;
    Ok((M::decode(bytes)?, size))
}

/// The fields of a message, as far as they take memory.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Bytes of a value, without those that it points to.
    size: u64,
    /// The fields by number; a field that is not here takes nothing.
    fields: BTreeMap<u32, Field>,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) of: Of,
    pub(crate) repeated: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// A string, or bytes.
    Text,
    /// A number of a list.
    Numbers,
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
        // Without a schema nothing is let through.
        Arc::new(message.map_or(Shape::new(usize::MAX, []), |message| Shape::of(&message)))
    };
    Shapes {
        snapshot: shape("Snapshot"),
        manifest: shape("Manifest"),
        bundle_header: shape("BundleHeader"),
        sealed_keys: shape("SealedKeys"),
    }
});

impl Shape {
    pub(crate) fn new(size: usize, fields: impl IntoIterator<Item = (u32, Field)>) -> Self {
        Self {
            size: size as u64,
            fields: fields.into_iter().collect(),
        }
    }

    /// Returns the shape of a message. No message of the schema can contain itself, so this ends.
    fn of(message: &MessageDescriptor) -> Self {
        let size = SIZES.iter().find(|(name, _)| *name == message.name());
        let fields = message.fields().filter_map(|field| {
            let repeated = field.is_list();
            let of = match field.kind() {
                Kind::String | Kind::Bytes => Of::Text,
                Kind::Message(inner) => Of::Message(Arc::new(Self::of(&inner))),
                _ if repeated => Of::Numbers,
                _ => return None,
            };
            Some((field.number(), Field { of, repeated }))
        });
        Self::new(size.map_or(UNKNOWN_SIZE, |(_, size)| *size), fields)
    }

    fn measure(&self, bytes: &[u8], limit: u64) -> Result<u64, BoundsError> {
        let mut walk = Walk { limit, left: limit };
        walk.take(self.size)?;
        walk.message(self, bytes)?;
        Ok(limit - walk.left)
    }
}

struct Walk {
    limit: u64,
    left: u64,
}

impl Walk {
    fn take(&mut self, size: u64) -> Result<(), BoundsError> {
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
                    decode_varint(&mut bytes)?;
                    self.number(shape, number)?;
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
                _ => self.number(shape, number)?,
            }
        }
        Ok(())
    }

    fn field(&mut self, shape: &Shape, number: u32, content: &[u8]) -> Result<(), BoundsError> {
        let Some(Field { of, repeated }) = shape.fields.get(&number) else {
            return Ok(());
        };
        match of {
            Of::Text => {
                let element = if *repeated { size_of::<String>() } else { 0 } as u64;
                self.take(GROWTH * element + ALLOCATION + content.len() as u64)
            }
            // One byte is one number at most.
            Of::Numbers => self.take(GROWTH * content.len() as u64 * size_of::<u64>() as u64),
            Of::Message(inner) => {
                if *repeated {
                    self.take(GROWTH.saturating_mul(inner.size))?;
                }
                self.message(inner, content)
            }
        }
    }

    fn number(&mut self, shape: &Shape, number: u32) -> Result<(), BoundsError> {
        match shape.fields.get(&number) {
            Some(_) => self.take(GROWTH * size_of::<u64>() as u64),
            None => Ok(()),
        }
    }
}

/// The words of the decoder itself, for what it would refuse as well.
fn malformed() -> BoundsError {
    #[allow(clippy::unwrap_used, reason = "an empty buffer holds no number")]
    BoundsError::Malformed(decode_varint(&mut [].as_slice()).unwrap_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Endpoint, EndpointSet, Route, RouteTable, VirtualHost};

    #[test]
    fn every_message_has_a_size_and_every_list_is_counted() {
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
    fn what_is_empty_where_it_is_encoded_is_counted_as_what_it_takes() {
        let many = Snapshot {
            route_tables: vec![RouteTable {
                name: "http/80".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "*".to_owned(),
                    routes: vec![Route::default(); 1000],
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
    fn endpoints_cost_a_few_times_what_they_take_encoded() {
        let set = EndpointSet {
            name: "Service/default/web/80".to_owned(),
            endpoints: (0..1000)
                .map(|port| Endpoint {
                    address: "10.100.200.30".to_owned(),
                    port,
                })
                .collect(),
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
    fn bytes_that_are_cut_off_and_groups_are_malformed() {
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
