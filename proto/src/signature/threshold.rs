//! Verifies that enough trusted keys have signed.

use std::collections::BTreeSet;

use ring::signature::{ED25519, UnparsedPublicKey};

use super::{SignatureError, Statement, TrustedKeys, id, list, parse};
use crate::keys::hex;

impl TrustedKeys {
    /// Returns the trusted signatures. Fails if fewer than `required` distinct trusted keys have
    /// signed.
    pub fn verify_by(
        &self,
        required: usize,
        statement: &Statement<'_>,
        stored: Option<&[u8]>,
    ) -> Result<GoodSignatures, SignatureError> {
        let stored = stored.ok_or(SignatureError::Missing)?;
        let (stamp, signatures) = parse(stored)?;
        let message = statement.message(stamp);
        let (mut wrong, mut signers) = (None, BTreeSet::new());
        for (signer, signature) in &signatures {
            for key in self.0.iter().filter(|key| id(&key[..]) == *signer) {
                match UnparsedPublicKey::new(&ED25519, key).verify(&message, signature) {
                    Ok(()) => {
                        signers.insert(hex(&id(key)));
                    }
                    Err(_) => wrong = Some(hex(&id(key))),
                }
            }
        }
        let found = signers.len();
        match wrong {
            _ if found > 0 && found >= required => Ok(GoodSignatures {
                stamp,
                signers: signers.into_iter().collect(),
            }),
            Some(key) => Err(SignatureError::Wrong { key }),
            None if found > 0 => Err(SignatureError::TooFew {
                found,
                signers: list(signers.into_iter()),
                required,
            }),
            None => Err(SignatureError::Stranger {
                signers: list(signatures.iter().map(|(signer, _)| hex(signer))),
                trusted: self.names(),
            }),
        }
    }
}

/// Valid signatures by trusted keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoodSignatures {
    /// Stamp of all signatures.
    pub stamp: u64,
    /// Identifiers of the trusted keys that have signed, without duplicates.
    pub signers: Vec<String>,
}

/// Returns the key identifiers in all signatures, without verifying them.
pub fn signers(stored: &[u8]) -> Vec<String> {
    let signatures = parse(stored).map(|(_, signatures)| signatures);
    let signatures = signatures.unwrap_or_default();
    signatures.iter().map(|(signer, _)| hex(signer)).collect()
}
