//! Builds malformed bundles.

use prost::Message as _;
use sesame_proto::bundle::{BundleLabel, write};
use sesame_proto::digest::sha256;
use sesame_proto::schema::{BundleHeader, BundlePart, Manifest, Snapshot};
use sesame_proto::shard::{self, Shard, Sharded};
use sesame_proto::signature::{SignedPiece, SigningKeys, Statement};

/// 14 bytes of magic, and the format version.
pub(crate) const PREAMBLE: usize = 18;

/// A bundle, split into parts that can be changed and joined again.
#[derive(Clone)]
pub(crate) struct Pieces {
    pub(crate) header: BundleHeader,
    pub(crate) signatures: Vec<u8>,
    pub(crate) parts: Vec<Vec<u8>>,
}

impl Pieces {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut at = PREAMBLE;
        let mut counted = || {
            let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            at += 4 + length;
            bytes[at - length..at].to_vec()
        };
        let (header, signatures) = (counted(), counted());
        let header = BundleHeader::decode(&header[..]).unwrap();
        let parts = header.parts.iter().map(|part| {
            let size = usize::try_from(part.size).unwrap();
            at += size;
            bytes[at - size..at].to_vec()
        });
        let parts = parts.collect();
        Self {
            header,
            signatures,
            parts,
        }
    }

    /// Returns the signed bytes: everything before the signatures.
    pub(crate) fn signed(&self) -> Vec<u8> {
        signed(&self.header.encode_to_vec())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        whole(self.signed(), &self.signatures, &self.parts)
    }

    /// Updates the sizes and digests first.
    pub(crate) fn sign(mut self, keys: &SigningKeys) -> Vec<u8> {
        for (part, content) in self.header.parts.iter_mut().zip(&self.parts) {
            part.size = content.len() as u64;
            part.sha256 = raw(&sha256(content));
        }
        self.sign_as_it_is(keys)
    }

    pub(crate) fn sign_as_it_is(mut self, keys: &SigningKeys) -> Vec<u8> {
        self.signatures = signatures(&self.header, &self.signed(), keys);
        self.bytes()
    }
}

pub(crate) fn signed(header: &[u8]) -> Vec<u8> {
    let mut bytes = b"SESAME-BUNDLE\n\0\0\0\x01".to_vec();
    bytes.extend(u32::try_from(header.len()).unwrap().to_be_bytes());
    bytes.extend(header);
    bytes
}

pub(crate) fn whole(mut bytes: Vec<u8>, signatures: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    bytes.extend(u32::try_from(signatures.len()).unwrap().to_be_bytes());
    bytes.extend(signatures);
    bytes.extend(parts.concat());
    bytes
}

pub(crate) fn signatures(header: &BundleHeader, signed: &[u8], keys: &SigningKeys) -> Vec<u8> {
    let statement = Statement {
        gateway: &header.gateway,
        piece: SignedPiece::Bundle,
        content: signed,
    };
    keys.sign(&statement, header.sequence)
}

pub(crate) fn raw(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let bytes =
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
    bytes.collect()
}

/// Builds well-formed bundles with malformed snapshots.
pub(crate) struct Forge<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) keys: &'a SigningKeys,
}

impl Forge<'_> {
    pub(crate) fn label(&self) -> BundleLabel {
        BundleLabel {
            gateway: self.snapshot.gateway.clone(),
            sequence: 1000,
            ..BundleLabel::default()
        }
    }

    pub(crate) fn sharded(&self, change: impl FnOnce(&mut Sharded)) -> Pieces {
        let good = shard::split(self.snapshot).unwrap();
        let good = write(&self.label(), &good, None, self.keys).unwrap();
        let mut pieces = Pieces::parse(&good);
        let manifest = Manifest::decode(&pieces.parts[0][..]).unwrap();
        let named = pieces.header.parts[1..].iter().zip(&pieces.parts[1..]);
        let shards = named.map(|(part, bytes)| Shard {
            name: part.name.clone(),
            bytes: bytes.clone().into(),
        });
        let mut sharded = Sharded {
            manifest,
            shards: shards.collect(),
        };
        change(&mut sharded);
        pieces.parts = vec![sharded.manifest.encode_to_vec()];
        pieces.header.parts.truncate(1);
        for Shard { name, bytes } in sharded.shards {
            pieces.parts.push(bytes.to_vec());
            pieces.header.parts.push(BundlePart {
                kind: 1,
                name,
                ..BundlePart::default()
            });
        }
        pieces
    }

    pub(crate) fn changed(&self, change: impl FnOnce(&mut Sharded)) -> Vec<u8> {
        self.sharded(change).sign(self.keys)
    }

    pub(crate) fn headed(&self, change: impl FnOnce(&mut BundleHeader)) -> Vec<u8> {
        let mut pieces = self.good();
        change(&mut pieces.header);
        pieces.sign_as_it_is(self.keys)
    }

    pub(crate) fn good(&self) -> Pieces {
        let sharded = shard::split(self.snapshot).unwrap();
        Pieces::parse(&write(&self.label(), &sharded, None, self.keys).unwrap())
    }
}
