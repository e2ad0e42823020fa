//! Completes a revision once all of its pieces are available.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_gateway_api::api::NamespacedName;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_published::names::shard_name;

use super::RevisionAssembler;
use crate::source::cluster::base_revision::{Config, Next};
use crate::source::cluster::pieces::{
    Blocked, CheckedManifest, endpoints, join, live_shards, moved_endpoints, used_endpoints,
    wait_for_keys,
};
use crate::source::update::{GatewayRevision, keys_of};

impl RevisionAssembler {
    /// If the revision is already complete, updates only its endpoints.
    pub(super) fn try_complete(&mut self) -> Result<(), Blocked> {
        let (Some(gateway), Some(named)) = (&self.gateway, &self.manifest) else {
            let fault = self.manifest_fault.clone();
            return Err(Blocked {
                stuck: true,
                reason: fault.unwrap_or_else(|| "its manifest has not been read".to_owned()),
                need: None,
            });
        };
        let revision = named.manifest.revision.clone();
        let complete = self.complete.as_ref();
        let same = complete.filter(|held| held.manifest_revision.as_ref() == Some(&revision));
        let encoded = if let Some(held) = same {
            self.moved(gateway, named, &held.encoded, self.endpoints_moved)?
        } else {
            let next = match self.next.take() {
                Some(next) => next,
                None => self.begin(gateway, named)?,
            };
            match self.encode(gateway, named, &next.config) {
                Ok(encoded) => {
                    self.base = Some(next.base);
                    Some(encoded)
                }
                Err(blocked) => {
                    self.next = Some(next);
                    return Err(blocked);
                }
            }
        };
        if let Some(encoded) = encoded {
            let gateway = gateway.clone();
            let revision = GatewayRevision::of_manifest(gateway, revision, Arc::new(encoded));
            self.complete = Some(revision);
        }
        self.endpoints_moved = false;
        self.tidy();
        Ok(())
    }

    fn begin(&self, gateway: &NamespacedName, named: &CheckedManifest) -> Result<Next, Blocked> {
        let base = self.complete.as_ref().zip(self.base.as_ref());
        let patched =
            base.and_then(|(held, base)| base.patch(gateway, &held.encoded, named, &self.shards));
        if let Some(patched) = patched {
            return Ok(patched);
        }
        let joined = join(&named.manifest, &self.shards, &self.faults)?;
        Ok(Next::joined(named, joined))
    }

    fn encode(
        &self,
        gateway: &NamespacedName,
        named: &CheckedManifest,
        config: &Config,
    ) -> Result<EncodedSnapshot, Blocked> {
        let config = match config {
            Config::Patched {
                encoded,
                backends_changed,
            } => {
                let may_have_moved = self.endpoints_moved || *backends_changed;
                let moved = self.moved(gateway, named, encoded, may_have_moved)?;
                return Ok(moved.unwrap_or_else(|| encoded.clone()));
            }
            Config::Joined(config) => config,
        };
        let CheckedManifest {
            manifest,
            key_secrets,
            stamp: _,
        } = named;
        let before = self.complete.as_ref();
        let held = before.into_iter().flat_map(|held| held.encoded.keys());
        let keys = keys_of(&config.key_refs(), self.keys.iter().chain(held))
            .map_err(|missing| wait_for_keys(&missing, *key_secrets, &self.faults))?;
        let earlier = before.map(|held| held.encoded.endpoints());
        let shards = live_shards(gateway, manifest, &self.live)?;
        let used = used_endpoints(config)?;
        let sets = endpoints(&shards, used, &earlier.unwrap_or_default())?;
        Ok(config.clone().with_keys(keys).with_endpoints(&sets))
    }

    /// Callers clear `may_have_moved` if no endpoint shard has changed.
    fn moved(
        &self,
        gateway: &NamespacedName,
        named: &CheckedManifest,
        encoded: &EncodedSnapshot,
        may_have_moved: bool,
    ) -> Result<Option<EncodedSnapshot>, Blocked> {
        if !may_have_moved {
            return Ok(None);
        }
        moved_endpoints(gateway, &named.manifest, &self.live, encoded)
    }

    /// Does not drop configuration shards, because the next manifest probably lists most of them.
    fn tidy(&mut self) {
        let (Some(gateway), Some(named)) = (&self.gateway, &self.manifest) else {
            return;
        };
        let manifest = &named.manifest;
        let live: BTreeSet<String> = manifest
            .endpoints
            .iter()
            .map(|reference| shard_name(gateway, &reference.name))
            .collect();
        self.live
            .retain(|name, held| !held.gone || live.contains(name));
        // The complete revision has its own copy of the keys.
        self.keys = Vec::new();
        self.faults = Vec::new();
    }
}
