//! Errors when creating and accepting bundles.

use super::{FORMAT, MAX_BYTES};
use crate::bounds::BoundsError;
use crate::shard::ShardError;
use crate::signature::SignatureError;

/// Error when creating or accepting a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// Not a bundle.
    #[error("is not a bundle: it does not begin with \"SESAME-BUNDLE\"")]
    NoBundle,
    /// Unsupported format version.
    #[error("has format {found}, but this version of Sesame supports format {FORMAT}; {}", advice(*found))]
    Format {
        /// Actual version.
        found: u32,
    },
    /// Truncated bundle.
    #[error("is truncated after {found} bytes, within its {place}; copy all of it again")]
    CutOff {
        /// Truncated part.
        place: String,
        /// Number of available bytes.
        found: usize,
    },
    /// Bytes follow the end of the bundle.
    #[error("has extra bytes after its end: {extra}")]
    Trailing {
        /// Number of extra bytes.
        extra: usize,
    },
    /// A part exceeds its size limit.
    #[error("the size of its {place} is {found} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Part name.
        place: String,
        /// Size in bytes.
        found: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The bundle would exceed its size limit.
    #[error(
        "is more than {} MiB; split the Gateway's routes across several Gateways",
        MAX_BYTES >> 20
    )]
    TooLargeAsAWhole,
    /// Undecodable header.
    #[error("its header {0}")]
    Decode(#[from] BoundsError),
    /// Invalid header.
    #[error("{0}")]
    Header(String),
    /// A part has an unexpected digest.
    #[error("its {place} was changed or damaged: SHA-256 {found}, expected {expected}")]
    Digest {
        /// Part name.
        place: String,
        /// Digest in the header.
        expected: String,
        /// Actual digest.
        found: String,
    },
    /// The parts do not match the manifest.
    #[error("{0}")]
    Parts(String),
    /// Inconsistent shards.
    #[error("{0}")]
    Shard(#[from] ShardError),
    /// Trusted signatures are missing or invalid.
    #[error("{0}")]
    Signature(#[from] SignatureError),
}

impl BundleError {
    /// Returns true if the file may still be incomplete.
    pub fn may_be_unfinished(&self) -> bool {
        match self {
            Self::NoBundle
            | Self::CutOff { .. }
            | Self::Trailing { .. }
            | Self::TooLarge { .. }
            | Self::Decode(_)
            | Self::Header(_)
            | Self::Digest { .. }
            | Self::Parts(_) => true,
            Self::Format { .. } | Self::TooLargeAsAWhole | Self::Shard(_) | Self::Signature(_) => {
                false
            }
        }
    }
}

fn advice(found: u32) -> &'static str {
    if found > FORMAT {
        "upgrade this host, or create the bundle with an older version"
    } else {
        "create the bundle with a newer version"
    }
}
