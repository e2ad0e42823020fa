//! Creates and signs bundles.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::read::BundleFile;
use super::{BundleError, BundleLabel, FORMAT, MAGIC, MAX_BYTES};
use crate::schema::{BundleHeader, BundlePart, BundlePartKind};
use crate::shard::Sharded;
use crate::signature::{SignedPiece, SigningKeys, Statement};

/// Creates a bundle. `keys` is the output of [`super::sealed::seal`], if any. The same input always
/// produces the same bytes.
pub fn write(
    label: &BundleLabel,
    sharded: &Sharded,
    keys: Option<&[u8]>,
    signing: &SigningKeys,
) -> Result<Vec<u8>, BundleError> {
    let Sharded { manifest, shards } = sharded;
    let manifest = manifest.encode_to_vec();
    let mut parts: Vec<(BundlePartKind, &str, &[u8])> =
        vec![(BundlePartKind::Manifest, "", &manifest)];
    let named = shards.iter().map(|shard| {
        let content: &[u8] = &shard.bytes;
        (BundlePartKind::Shard, shard.name.as_str(), content)
    });
    parts.extend(named);
    parts.extend(keys.map(|keys| (BundlePartKind::Keys, "", keys)));
    let BundleLabel {
        gateway,
        sequence,
        created,
        creator,
        origin,
    } = label.clone();
    let header = BundleHeader {
        gateway,
        sequence,
        created,
        creator,
        origin,
        parts: parts
            .iter()
            .map(|(kind, name, content)| BundlePart {
                kind: (*kind).into(),
                name: (*name).to_owned(),
                size: content.len() as u64,
                sha256: Sha256::digest(content).to_vec(),
            })
            .collect(),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_be_bytes());
    put(&header.encode_to_vec(), &mut bytes)?;
    let statement = Statement {
        gateway: &header.gateway,
        piece: SignedPiece::Bundle,
        content: &bytes,
    };
    let signatures = signing.sign(&statement, label.sequence);
    put(&signatures, &mut bytes)?;
    for (_, _, content) in parts {
        bytes.extend_from_slice(content);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(BundleError::TooLargeAsAWhole);
        }
    }
    // Never return a bundle that readers would reject.
    BundleFile::read(&bytes)?;
    Ok(bytes)
}

/// Adds signatures to a bundle, and keeps existing ones.
pub fn add_signatures(bundle: &[u8], signing: &SigningKeys) -> Result<Vec<u8>, BundleError> {
    let file = BundleFile::read(bundle)?;
    let signatures = signing.add_to(&file.statement(), file.signatures())?;
    let mut bytes = file.signed().to_vec();
    let rest = bytes.len() + size_of::<u32>() + file.signatures().len();
    put(&signatures, &mut bytes)?;
    bytes.extend_from_slice(bundle.get(rest..).unwrap_or_default());
    BundleFile::read(&bytes)?;
    Ok(bytes)
}

fn put(content: &[u8], bytes: &mut Vec<u8>) -> Result<(), BundleError> {
    let length = u32::try_from(content.len()).map_err(|_| BundleError::TooLargeAsAWhole)?;
    bytes.extend(length.to_be_bytes());
    bytes.extend_from_slice(content);
    Ok(())
}
