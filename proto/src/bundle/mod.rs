//! A bundle: a snapshot in a single signed file, for a host without network access.
//!
//! Bundles are untrusted input: sizes and counts are limited before anything is decoded. Private
//! keys are included only if [`sealed`] for certain hosts. This module never reads a clock or
//! generates random numbers.
//!
//! ```
//! use sesame_proto::bundle::{self, BundleFile, BundleLabel};
//! use sesame_proto::schema::Snapshot;
//! use sesame_proto::signature::SigningKeys;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use base64::Engine as _;
//! # let random = ring::rand::SystemRandom::new();
//! # let key = ring::signature::Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| "no key")?;
//! # let key = base64::engine::general_purpose::STANDARD.encode(key);
//! # let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
//! // `pem` is the output of `openssl genpkey -algorithm ed25519`.
//! let signing = SigningKeys::from_pem(pem.as_bytes())?;
//! let gateway = "Gateway/default/edge".to_owned();
//! let snapshot = Snapshot { gateway: gateway.clone(), ..Snapshot::default() };
//! let label = BundleLabel { gateway, sequence: 1, ..BundleLabel::default() };
//! let sharded = sesame_proto::shard::split(&snapshot)?;
//! let bytes = bundle::write(&label, &sharded, None, &signing)?;
//!
//! let file = BundleFile::read(&bytes)?;
//! file.verify(&signing.trusted(), 1)?;
//! assert_eq!(file.label(), &label);
//! assert_eq!(file.snapshot()?, snapshot);
//! # Ok(())
//! # }
//! ```

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

const MAGIC: &[u8; 14] = b"SESAME-BUNDLE\n";
/// Supported format version.
pub const FORMAT: u32 = 1;
/// Maximum size of a bundle in bytes.
pub const MAX_BYTES: u64 = 256 << 20;
const MAX_HEADER_BYTES: usize = 1 << 20;
const MAX_SIGNATURE_BYTES: usize = 1 << 10;
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
const MAX_KEY_BYTES: u64 = 24 << 20;
/// Half the maximum length of each string in a label, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;

/// Identifies a bundle's Gateway, sequence number and origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleLabel {
    /// Gateway as `Gateway/namespace/name`.
    pub gateway: String,
    /// Sequence number, starting at 1. It must increase with each of the Gateway's bundles.
    pub sequence: u64,
    /// Creation time as a Unix timestamp; 0 if unknown.
    pub created: u64,
    /// Description of the creator, for display.
    pub creator: String,
    /// Description of the source, for display.
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
            // Reject control characters, which could manipulate a terminal or a log.
            if text.len() > 2 * MAX_TEXT_BYTES || text.chars().any(char::is_control) {
                return Err(BundleError::Header(format!(
                    "its {name} contains control characters or more than {} bytes",
                    2 * MAX_TEXT_BYTES
                )));
            }
        }
        Ok(())
    }
}
