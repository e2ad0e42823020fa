//! Conditions for accepting bundles: trusted keys, the host's identity, and the separate key file.

use sesame_files::directory::KEYS;
use sesame_proto::bundle::sealed::HostIdentity;
use sesame_proto::keys::KeyPair;
use sesame_proto::signature::TrustedKeys;

use super::state::{BundleState, BundleStateError};
use super::{BundleSettings, problem};
use crate::manifests::tree::{self, Found, Stamp};
use crate::problem::SourceProblem;
use crate::snapshots::read_keys;

/// If these change, all files are examined again.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) trusted: TrustedKeys,
    pub(super) identity: Option<HostIdentity>,
    /// From the separate key file.
    pub(super) keys: Vec<KeyPair>,
    keys_stamp: Option<Stamp>,
    faults: Vec<(&'static str, String)>,
}

impl Conditions {
    /// Returns `None` if nothing changed since `self` was read.
    pub(super) fn changed(
        &self,
        settings: &BundleSettings,
        state: &BundleState,
    ) -> Result<Option<Self>, BundleStateError> {
        let mut faults = Vec::new();
        let mut trusted = state.trusted()?;
        for pem in settings.trusted.to_pem().values() {
            if let Err(error) = trusted.add_pem(pem.as_bytes()) {
                faults.push(("", format!("one of the trusted keys {error}")));
            }
        }
        let identity = state.identity()?;
        let path = settings.directory.join(KEYS);
        let keys_stamp = match tree::inspect(&path) {
            Found::File(stamp) => Some(stamp),
            _ => None,
        };
        let public = |identity: &Option<HostIdentity>| identity.as_ref().map(HostIdentity::public);
        let same_keys =
            self.keys_stamp == keys_stamp && !keys_stamp.is_some_and(|stamp| stamp.is_fresh());
        if same_keys && self.trusted == trusted && public(&self.identity) == public(&identity) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        if keys_stamp.is_some() {
            match read_keys(&path) {
                Ok(read) => keys = read,
                Err(error) => faults.push((KEYS, error)),
            }
        }
        Ok(Some(Self {
            trusted,
            identity,
            keys,
            keys_stamp,
            faults,
        }))
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = SourceProblem> {
        let faults = self.faults.iter();
        faults.map(|(file, why)| problem(file, why.clone()))
    }
}
