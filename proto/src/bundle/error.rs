//! Errors when creating and accepting bundles.

use super::{FORMAT, MAX_BYTES};
use crate::bounds::BoundsError;
use crate::shard::ShardError;
use crate::signature::SignatureError;

/// Error when creating or accepting a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The bytes are not a bundle.
    #[error("is not a bundle: it does not begin with \"SESAME-BUNDLE\"")]
    NoBundle,
    /// The format version is not supported.
    #[error("has format {found}, but this version of Sesame supports format {FORMAT}; {}", advice(*found))]
    Format {
        /// Actual format version.
        found: u32,
    },
    /// The bundle is truncated.
    #[error("is truncated after {found} bytes, within its {place}; copy it again completely")]
    CutOff {
        /// The part in which the bytes end.
        place: String,
        /// Number of bytes found.
        found: usize,
    },
    /// Extra bytes follow the bundle.
    #[error("has {extra} bytes after its end")]
    Trailing {
        /// Number of extra bytes.
        extra: usize,
    },
    /// A part exceeds its size limit.
    #[error("its {place} is {found} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The part's name.
        place: String,
        /// Actual size in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The complete bundle would exceed its size limit.
    #[error(
        "is more than {} MiB; split the Gateway's routes over several Gateways",
        MAX_BYTES >> 20
    )]
    TooLargeAsAWhole,
    /// The header cannot be decoded.
    #[error("its header {0}")]
    Decode(#[from] BoundsError),
    /// The header is invalid.
    #[error("{0}")]
    Header(String),
    /// A part's bytes do not match their digest in the header.
    #[error("its {place} was changed or damaged: SHA-256 {found}, expected {expected}")]
    Digest {
        /// The part's name.
        place: String,
        /// Digest according to the header.
        expected: String,
        /// Actual digest.
        found: String,
    },
    /// The parts do not match the manifest.
    #[error("{0}")]
    Parts(String),
    /// The shards cannot be joined.
    #[error("{0}")]
    Shard(#[from] ShardError),
    /// Required signatures by trusted keys are missing or invalid.
    #[error("{0}")]
    Signature(#[from] SignatureError),
}

impl BundleError {
    /// Returns true if the error can occur because the file is still being written.
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
        "upgrade this host, or make the bundle with an older version"
    } else {
        "make the bundle with a newer version"
    }
}
