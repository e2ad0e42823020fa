//! A bundle: a snapshot in a single signed file, for a host without network access.
//!
//! Bundles are parsed as untrusted input: sizes and counts are limited before anything is decoded.
//! The signed header contains the digests of all parts. Private keys are included only if they are
//! [`sealed`] for certain hosts. This module never reads a clock or generates random numbers, so
//! callers must supply the time and random bytes.
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

/// First bytes of every bundle.
const MAGIC: &[u8; 14] = b"SESAME-BUNDLE\n";
/// The format version that this version of Sesame reads and writes.
pub const FORMAT: u32 = 1;
/// Maximum size of a bundle in bytes.
pub const MAX_BYTES: u64 = 256 << 20;
/// Maximum size of the header in bytes.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// Maximum size of the signatures in bytes. There is room for [`crate::signature::MAX_KEYS`]
/// signatures.
const MAX_SIGNATURE_BYTES: usize = 1 << 10;
/// Maximum size of the manifest in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Maximum size of the sealed keys in bytes.
const MAX_KEY_BYTES: u64 = 24 << 20;
/// Maximum length of human-readable strings in bytes.
pub const MAX_TEXT_BYTES: usize = 256;

/// Label of a bundle, which identifies its Gateway, sequence number and origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleLabel {
    /// Gateway in the form `Gateway/namespace/name`.
    pub gateway: String,
    /// Sequence number, starting at 1. It must increase with each bundle for the Gateway.
    pub sequence: u64,
    /// Creation time as a Unix timestamp; 0 if unknown.
    pub created: u64,
    /// Human-readable name of the creator.
    pub creator: String,
    /// Human-readable description of the source.
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

    /// Checks the fields of the header that make up the label.
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
            // Reject control characters, because printing them could manipulate a terminal or a
            // log.
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
