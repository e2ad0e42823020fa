//! Signs published objects and verifies existing objects. Therefore, permission to write ConfigMaps
//! is not enough to change the served configuration.

use std::sync::Arc;

use sesame_proto::signature::{SignedPiece, SigningKeys, Statement};

use super::objects::{DesiredObject, PublicationOwner};
use sesame_published::names::{KEY_SECRETS_ENTRY, Part};

/// Signing keys, or `None` if signing is disabled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signing(pub(crate) Option<Arc<SigningKeys>>);

/// The state of an object's signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seal {
    /// The object need not be signed.
    #[default]
    None,
    /// Each of our keys signed the object, with this stamp.
    Good(u64),
    /// The signature is missing or invalid, or was not made with exactly our keys.
    Bad,
}

/// The parts of an object that the signature covers.
pub(super) struct Sealed<'a> {
    pub(super) part: Part,
    pub(super) name: &'a str,
    /// `namespace/name`.
    pub(super) gateway: &'a str,
    pub(super) fleet: &'a str,
    pub(super) key_secrets: &'a str,
    pub(super) content: &'a [u8],
    pub(super) signature: Option<&'a [u8]>,
}

impl Signing {
    /// Returns true if published objects are signed.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the signature for an object that will be written.
    pub(super) fn sign(
        &self,
        object: &DesiredObject,
        owner: &PublicationOwner,
        stamp: u64,
    ) -> Option<Vec<u8>> {
        let keys = self.0.as_ref()?;
        let key_secrets = object.summary.get(KEY_SECRETS_ENTRY);
        let gateway = full_name(&owner.gateway.to_string());
        let piece = piece(
            object.part,
            &object.name,
            &owner.fleet,
            key_secrets.map_or("0", String::as_str),
        )?;
        let statement = Statement {
            gateway: &gateway,
            piece,
            content: &object.bytes,
        };
        Some(keys.sign(&statement, stamp))
    }

    /// Returns the signature state of an object just written with this stamp.
    pub(super) fn written(&self, part: Part, stamp: u64) -> Seal {
        match part {
            Part::Manifest | Part::Endpoints if self.is_on() => Seal::Good(stamp),
            _ => Seal::None,
        }
    }

    /// Verifies the signature of an existing object.
    pub(super) fn seen(&self, found: &Sealed<'_>) -> Seal {
        let Sealed {
            part,
            name,
            gateway,
            fleet,
            key_secrets,
            content,
            signature,
        } = found;
        let (Some(keys), Part::Manifest | Part::Endpoints) = (&self.0, part) else {
            return Seal::None;
        };
        let gateway = full_name(gateway);
        let stamp = piece(*part, name, fleet, key_secrets).and_then(|piece| {
            let statement = Statement {
                gateway: &gateway,
                piece,
                content,
            };
            keys.verify_all(&statement, (*signature)?)
        });
        stamp.map_or(Seal::Bad, Seal::Good)
    }
}

/// Returns a Gateway's name in the form `namespace/name`, as in snapshots.
fn full_name(gateway: &str) -> String {
    format!("Gateway/{gateway}")
}

fn piece<'a>(
    part: Part,
    name: &'a str,
    fleet: &'a str,
    key_secrets: &str,
) -> Option<SignedPiece<'a>> {
    match part {
        Part::Manifest => Some(SignedPiece::Manifest {
            fleet,
            key_secrets: key_secrets.parse().ok()?,
        }),
        Part::Endpoints => Some(SignedPiece::Endpoints { name }),
        Part::Config | Part::Keys => None,
    }
}
