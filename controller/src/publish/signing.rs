//! Signs and verifies published objects. Permission to write ConfigMaps is therefore not enough to
//! change the served configuration.

use std::sync::Arc;

use sesame_proto::signature::{SignedPiece, SigningKeys, Statement};

use super::objects::{DesiredObject, PublicationOwner};
use sesame_published::names::{KEY_SECRETS_ENTRY, Part};

/// `None` disables signing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signing(pub(crate) Option<Arc<SigningKeys>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seal {
    /// No signature is needed.
    #[default]
    None,
    /// Signed with all configured keys, at this stamp.
    Good(u64),
    /// The signature is missing or invalid, or its keys differ from the configured keys.
    Bad,
}

pub(super) struct Sealed<'a> {
    pub(super) part: Part,
    pub(super) name: &'a str,
    pub(super) gateway: &'a str,
    pub(super) fleet: &'a str,
    pub(super) key_secrets: &'a str,
    pub(super) content: &'a [u8],
    pub(super) signature: Option<&'a [u8]>,
}

impl Signing {
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

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

    pub(super) fn written(&self, part: Part, stamp: u64) -> Seal {
        match part {
            Part::Manifest | Part::Endpoints if self.is_on() => Seal::Good(stamp),
            _ => Seal::None,
        }
    }

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
