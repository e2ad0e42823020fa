//! Completes a revision once all of its pieces are available.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_published::names::shard_name;

use super::RevisionAssembler;
use super::staging::{others, staging};
use crate::cluster::pieces::{Blocked, CheckedManifest, endpoints, join, wait_for_keys};
use crate::update::{GatewayRevision, Staging, keys_of};

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
        let manifest = &named.manifest;
        let complete = self.complete.as_ref();
        let before = complete.map(|held| &*held.encoded);
        let same = complete.filter(|it| it.manifest_revision.as_ref() == Some(&manifest.revision));
        let config = match (same, self.next.take()) {
            (Some(held), _) => EncodedSnapshot::clone(&held.encoded),
            (None, Some(joined)) => joined,
            (None, None) => join(manifest, &mut self.shards, &self.faults)?,
        };
        if same.is_none() || self.endpoints_moved {
            let earlier = before.map_or(&[][..], EncodedSnapshot::endpoint_entries);
            let complete = with_keys(&config, before, named, &self.keys, &self.faults);
            let complete = complete.and_then(|complete| {
                let sets = endpoints(gateway, manifest, &self.live, &config, earlier)?;
                Ok(complete.with_endpoints(sets))
            });
            let encoded = match complete {
                Ok(encoded) => Arc::new(encoded),
                Err(blocked) => {
                    self.next = same.is_none().then_some(config);
                    return Err(blocked);
                }
            };
            if before != Some(&*encoded) || same.is_none() {
                let (gateway, revision) = (gateway.clone(), manifest.revision.clone());
                let revision = GatewayRevision::of_manifest(gateway, revision, encoded);
                self.complete = Some(revision);
            }
        }
        self.endpoints_moved = false;
        self.stage();
        self.tidy();
        Ok(())
    }

    fn stage(&mut self) {
        let (Some(complete), Some(named)) = (&mut self.complete, &self.manifest) else {
            return;
        };
        let config = &complete.encoded;
        complete.staging = staging(&named.manifest, config, &self.host);
        let others = match complete.staging {
            Staging::Immediate => Vec::new(),
            _ => others(&complete.gateway, &named.manifest, &self.live, config),
        };
        if *complete.others != *others {
            complete.others = others.into();
        }
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

fn with_keys(
    config: &EncodedSnapshot,
    before: Option<&EncodedSnapshot>,
    named: &CheckedManifest,
    fetched: &[KeyPair],
    faults: &[String],
) -> Result<EncodedSnapshot, Blocked> {
    if let Some(same) = before.and_then(|before| config.with_keys_of(before)) {
        return Ok(same);
    }
    let held = before.into_iter().flat_map(EncodedSnapshot::keys);
    let keys = keys_of(&config.rest().keys, fetched.iter().chain(held))
        .map_err(|missing| wait_for_keys(&missing, named.key_secrets, faults))?;
    Ok(config.clone().with_keys(keys))
}
