//! Reasons why bytes are not an acceptable bundle.

use super::{FORMAT, MAX_BYTES};
use crate::bounds::BoundsError;
use crate::shard::ShardError;
use crate::signature::SignatureError;

/// Reasons for which a bundle cannot be made or is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The bytes are something else.
    #[error("is no bundle: it does not begin with \"SESAME-BUNDLE\"")]
    NoBundle,
    /// The bundle is of a version that this code does not know.
    #[error("has format {found}, and this version of Sesame reads format {FORMAT}; {}", advice(*found))]
    Format {
        /// The version that it has.
        found: u32,
    },
    /// The bytes end before the bundle does.
    #[error("ends after {found} bytes, within its {place}; copy it again, as a whole")]
    CutOff {
        /// The part in which it ends.
        place: String,
        /// The number of bytes that there are.
        found: usize,
    },
    /// There is something behind it.
    #[error("has {extra} bytes behind its end")]
    Trailing {
        /// The number of bytes.
        extra: usize,
    },
    /// It is larger than it may be.
    #[error("its {place} is {found} bytes, more than the {limit} that it may have")]
    TooLarge {
        /// The part that is too large.
        place: String,
        /// The bytes that it has.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The whole would be larger than it may be.
    #[error(
        "is more than {} MiB; split the Gateway's routes over several Gateways",
        MAX_BYTES >> 20
    )]
    TooLargeAsAWhole,
    /// The header cannot be decoded.
    #[error("its header {0}")]
    Decode(#[from] BoundsError),
    /// The header says something that it may not say.
    #[error("{0}")]
    Header(String),
    /// A part's bytes are not those that the header names.
    #[error("its {place} was changed or damaged: SHA-256 {found}, expected {expected}")]
    Digest {
        /// The part.
        place: String,
        /// The digest that the header names.
        expected: String,
        /// The digest of the bytes.
        found: String,
    },
    /// The parts differ from the manifest.
    #[error("{0}")]
    Parts(String),
    /// The shards do not make a snapshot.
    #[error("{0}")]
    Shard(#[from] ShardError),
    /// No trusted key has signed it.
    #[error("{0}")]
    Signature(#[from] SignatureError),
}

impl BundleError {
    /// Returns true if a file that is still being written may look like this.
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
