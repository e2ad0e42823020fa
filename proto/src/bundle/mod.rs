//! A bundle: a snapshot as one signed file, for a host that is connected to nothing.
//!
//! A file is taken apart without being trusted: its sizes and counts are bounded before anything is decoded, its header has
//! the digests of everything behind it, and the header is what is signed. Private keys are in it only as [`sealed`] to
//! certain hosts. Nothing here must ask a clock or make a random number: both are handed in.

mod difference;
mod error;
mod read;
pub mod sealed;
#[cfg(test)]
mod tests;
mod write;

use crate::schema::BundleHeader;

pub use self::difference::{BundleDifference, NameDifference, difference};
pub use self::error::BundleError;
pub use self::read::BundleFile;
pub use self::write::{add_signatures, write};

/// The first bytes of every bundle.
const MAGIC: &[u8; 14] = b"SESAME-BUNDLE\n";
/// Version of the format that this code writes and reads.
pub const FORMAT: u32 = 1;
/// Bytes of a bundle at most.
pub const MAX_BYTES: u64 = 256 << 20;
/// Bytes of its header at most.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// Bytes of its signatures at most: more than [`crate::signature::MAX_KEYS`] of them take.
const MAX_SIGNATURE_BYTES: usize = 1 << 10;
/// Bytes of its manifest at most.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Bytes of its sealed keys at most.
const MAX_KEY_BYTES: u64 = 24 << 20;
/// Bytes of a text for people at most.
pub const MAX_TEXT_BYTES: usize = 256;

/// The label of a bundle: its Gateway, sequence number, and origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleLabel {
    /// The Gateway, `Gateway/namespace/name`.
    pub gateway: String,
    /// Number that grows from each bundle of the Gateway to the next; from 1.
    pub sequence: u64,
    /// Creation time in seconds since 1970; 0 if unknown.
    pub created: u64,
    /// Name of who made it, for people.
    pub creator: String,
    /// Description of the source, for people.
    pub origin: String,
}

impl BundleLabel {
    fn of(header: &BundleHeader) -> Self {
        Self {
            gateway: header.gateway.clone(),
            sequence: header.sequence,
            created: header.created,
            creator: header.creator.clone(),
            origin: header.origin.clone(),
        }
    }

    /// Checks the header's statements about the whole bundle.
    fn check(&self) -> Result<(), BundleError> {
        let Self {
            gateway,
            sequence,
            created: _,
            creator,
            origin,
        } = self;
        if *sequence == 0 {
            return Err(BundleError::Header("its sequence number is 0".to_owned()));
        }
        for (name, text) in [
            ("gateway", gateway),
            ("creator", creator),
            ("origin", origin),
        ] {
            // A terminal or log that shows it must not be led astray.
            if text.len() > 2 * MAX_TEXT_BYTES || text.chars().any(char::is_control) {
                return Err(BundleError::Header(format!(
                    "its {name} has control characters or more than {} bytes",
                    2 * MAX_TEXT_BYTES
                )));
            }
        }
        Ok(())
    }
}
