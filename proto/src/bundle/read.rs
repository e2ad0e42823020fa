//! Parses bundles.
//!
//! Do not trust any content before [`BundleFile::verify`] succeeds. Digests only prove that the
//! file is complete.

use std::collections::BTreeMap;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{
    BundleError, BundleLabel, FORMAT, MAGIC, MAX_BYTES, MAX_HEADER_BYTES, MAX_KEY_BYTES,
    MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES,
};
use crate::bounds;
use crate::digest::sha256;
use crate::keys::hex;
use crate::schema::{BundleHeader, BundlePart, BundlePartKind, Manifest, Snapshot};
use crate::shard::{self, MAX_SHARDS, MAX_STORED_BYTES};
use crate::signature::{GoodSignatures, SignedPiece, Statement, TrustedKeys};

/// A complete bundle with matching digests, but unverified signatures.
#[derive(Clone, Debug)]
pub struct BundleFile<'a> {
    label: BundleLabel,
    signed: &'a [u8],
    signatures: &'a [u8],
    manifest: Manifest,
    shards: BTreeMap<String, &'a [u8]>,
    keys: Option<&'a [u8]>,
}

impl<'a> BundleFile<'a> {
    /// Parses a bundle.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BundleError> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(BundleError::TooLargeAsAWhole);
        }
        let mut cursor = Cursor { all: bytes, at: 0 };
        let magic = &MAGIC[..bytes.len().min(MAGIC.len())];
        if bytes.get(..magic.len()) != Some(magic) {
            return Err(BundleError::NoBundle);
        }
        cursor.take(MAGIC.len(), "beginning")?;
        let format = cursor.number("beginning")?;
        if format != FORMAT {
            return Err(BundleError::Format { found: format });
        }
        let header_bytes = cursor.counted("header", MAX_HEADER_BYTES)?;
        let signed = &bytes[..cursor.at];
        let signatures = cursor.counted("signatures", MAX_SIGNATURE_BYTES)?;
        let header = bounds::bundle_header(header_bytes)?;
        if header.encode_to_vec() != header_bytes {
            return Err(BundleError::Header(format!(
                "its header has fields that format {FORMAT} does not have"
            )));
        }
        let label = BundleLabel::of(&header);
        label.check()?;
        check_parts(&header)?;
        let mut contents = Vec::with_capacity(header.parts.len());
        for part in &header.parts {
            contents.push((part, content(part, &mut cursor)?));
        }
        let extra = bytes.len() - cursor.at;
        if extra > 0 {
            return Err(BundleError::Trailing { extra });
        }
        let (manifest, shards, keys) = sort(&label.gateway, contents)?;
        Ok(Self {
            label,
            signed,
            signatures,
            manifest,
            shards,
            keys,
        })
    }

    /// Returns the trusted signatures. Fails if fewer than `required` distinct trusted keys have
    /// signed.
    pub fn verify(
        &self,
        trusted: &TrustedKeys,
        required: usize,
    ) -> Result<GoodSignatures, BundleError> {
        let good = trusted.verify_by(required, &self.statement(), Some(self.signatures))?;
        if good.stamp != self.label.sequence {
            return Err(BundleError::Header(format!(
                "its signatures are for sequence number {}, but its header has {}",
                good.stamp, self.label.sequence
            )));
        }
        Ok(good)
    }

    /// Decodes the snapshot. Call [`BundleFile::verify`] first, because untrusted data must not be
    /// decompressed.
    pub fn snapshot(&self) -> Result<Snapshot, BundleError> {
        Ok(shard::join(&self.manifest, &self.shards)?)
    }

    /// Returns the label.
    pub fn label(&self) -> &BundleLabel {
        &self.label
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the key pairs for [`super::sealed::open`], if included.
    pub fn keys(&self) -> Option<&'a [u8]> {
        self.keys
    }

    /// Returns the SHA-256 digest in hex of the signed part, which excludes the signatures.
    pub fn digest(&self) -> String {
        sha256(self.signed)
    }

    /// Returns the stored signatures.
    pub fn signatures(&self) -> &'a [u8] {
        self.signatures
    }

    pub(super) fn signed(&self) -> &'a [u8] {
        self.signed
    }

    pub(super) fn statement(&self) -> Statement<'_> {
        Statement {
            gateway: &self.label.gateway,
            piece: SignedPiece::Bundle,
            content: self.signed,
        }
    }
}

fn check_parts(header: &BundleHeader) -> Result<(), BundleError> {
    let found = header.parts.len();
    if found > MAX_SHARDS + 2 {
        let limit = MAX_SHARDS + 2;
        return Err(BundleError::Header(format!(
            "its header lists {found} parts; at most {limit} are allowed"
        )));
    }
    for (index, part) in header.parts.iter().enumerate() {
        let limit = match kind(part)? {
            BundlePartKind::Manifest => MAX_MANIFEST_BYTES,
            BundlePartKind::Shard => MAX_STORED_BYTES as u64,
            BundlePartKind::Keys => MAX_KEY_BYTES,
        };
        if part.size > limit {
            let (place, found) = (place(part), part.size);
            return Err(BundleError::TooLarge {
                place,
                found,
                limit,
            });
        }
        let ordered = match kind(part)? {
            BundlePartKind::Manifest => index == 0,
            BundlePartKind::Shard => index > 0,
            BundlePartKind::Keys => index > 0 && index + 1 == found,
        };
        let named = (kind(part)? == BundlePartKind::Shard) != part.name.is_empty();
        if !ordered || !named {
            return Err(BundleError::Parts(format!(
                "part {index} is its {}, which is not allowed at this position",
                place(part)
            )));
        }
    }
    Ok(())
}

fn content<'a>(part: &BundlePart, cursor: &mut Cursor<'a>) -> Result<&'a [u8], BundleError> {
    // If the size does not fit into `usize`, `take` fails.
    let size = usize::try_from(part.size).unwrap_or(usize::MAX);
    let content = cursor.take(size, &place(part))?;
    let found = Sha256::digest(content);
    if found[..] != part.sha256 {
        return Err(BundleError::Digest {
            place: place(part),
            expected: hex(&part.sha256),
            found: hex(&found),
        });
    }
    Ok(content)
}

type Contents<'a> = (Manifest, BTreeMap<String, &'a [u8]>, Option<&'a [u8]>);

/// Fails unless the header lists exactly the manifest's shards in order.
fn sort<'a>(
    gateway: &str,
    contents: Vec<(&BundlePart, &'a [u8])>,
) -> Result<Contents<'a>, BundleError> {
    let (mut manifest, mut keys) = (None, None);
    let mut shards: Vec<(&str, &'a [u8])> = Vec::new();
    for (part, content) in contents {
        match kind(part)? {
            BundlePartKind::Manifest => manifest = Some(bounds::manifest(content)?),
            BundlePartKind::Shard => shards.push((&part.name, content)),
            BundlePartKind::Keys => keys = Some(content),
        }
    }
    let manifest = manifest.ok_or_else(|| BundleError::Parts("it has no manifest".to_owned()))?;
    shard::check(&manifest)?;
    if manifest.gateway != gateway {
        return Err(BundleError::Parts(format!(
            "its manifest is for {:?}, but its header names {gateway:?}",
            manifest.gateway
        )));
    }
    let named = manifest.config.iter().chain(&manifest.endpoints);
    let named: Vec<&str> = named.map(|shard| shard.name.as_str()).collect();
    let held: Vec<&str> = shards.iter().map(|(name, _)| *name).collect();
    if named != held {
        let stray = held.iter().find(|name| !named.contains(name));
        let missing = named.iter().find(|name| !held.contains(name));
        return Err(BundleError::Parts(match (stray, missing) {
            (Some(stray), _) => format!("its shard {stray:?} does not belong to its manifest"),
            (None, Some(missing)) => format!("its shard {missing:?} is missing"),
            (None, None) => {
                "its shards are repeated or not in the order of its manifest".to_owned()
            }
        }));
    }
    let count = shards.len();
    let shards: BTreeMap<String, &[u8]> = shards
        .into_iter()
        .map(|(name, content)| (name.to_owned(), content))
        .collect();
    if shards.len() != count {
        return Err(BundleError::Parts(
            "one of its shards is repeated".to_owned(),
        ));
    }
    Ok((manifest, shards, keys))
}

fn kind(part: &BundlePart) -> Result<BundlePartKind, BundleError> {
    BundlePartKind::try_from(part.kind).map_err(|_| {
        BundleError::Header(format!(
            "its header lists a part of kind {}, which format {FORMAT} does not define",
            part.kind
        ))
    })
}

fn place(part: &BundlePart) -> String {
    match kind(part) {
        Ok(BundlePartKind::Manifest) => "manifest".to_owned(),
        Ok(BundlePartKind::Keys) => "keys".to_owned(),
        _ => format!("shard {:?}", part.name),
    }
}

struct Cursor<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize, place: &str) -> Result<&'a [u8], BundleError> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.all.get(self.at..end));
        let taken = taken.ok_or_else(|| BundleError::CutOff {
            place: place.to_owned(),
            found: self.all.len(),
        })?;
        self.at += length;
        Ok(taken)
    }

    fn number(&mut self, place: &str) -> Result<u32, BundleError> {
        let bytes = self.take(size_of::<u32>(), place)?;
        let mut number = [0; size_of::<u32>()];
        number.copy_from_slice(bytes);
        Ok(u32::from_be_bytes(number))
    }

    fn counted(&mut self, place: &str, limit: usize) -> Result<&'a [u8], BundleError> {
        let length = usize::try_from(self.number(place)?).unwrap_or(usize::MAX);
        if length > limit {
            return Err(BundleError::TooLarge {
                place: place.to_owned(),
                found: length as u64,
                limit: limit as u64,
            });
        }
        self.take(length, place)
    }
}
