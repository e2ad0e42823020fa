//! Assembles the newest revision of one Gateway from its pieces.
//!
//! Does no I/O: returns the missing pieces, which `fetch` then reads.

mod completion;
mod staging;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_kinds::api::NamespacedName;
use sesame_proto::encoded::{EncodedSnapshot, canonical_endpoint_entries};
use sesame_proto::keys::KeyPair;
use sesame_proto::shard::{self, Endpoints, MAX_SHARDS, MAX_SNAPSHOT_BYTES};
use sesame_proto::signature::{self, SignedPiece};
use sesame_published::names::{SHARD_ENTRY, shard_name};

use super::fetch::{Fetched, MissingPieces};
use super::pieces::{
    Blocked, CheckedManifest, EndpointShard, HeldContent, HeldShard, entry, owner, read_manifest,
    verified,
};
use crate::update::{GatewayRevision, GatewayUpdate, IncompleteRevision, Trusted};

/// Maximum compressed size of one Gateway's shards, in bytes.
const MAX_HELD_BYTES: usize = 128 << 20;

#[derive(Debug, Default)]
pub(super) struct RevisionAssembler {
    trusted: Trusted,
    /// Name of this host.
    host: Arc<str>,
    /// Stamps of the latest signatures, by object name. Objects with older stamps are rejected.
    stamps: BTreeMap<String, u64>,
    gateway: Option<NamespacedName>,
    manifest: Option<CheckedManifest>,
    /// Why the newest manifest was rejected. The previous one remains in use.
    manifest_fault: Option<String>,
    live: BTreeMap<String, EndpointShard>,
    endpoints_moved: bool,
    /// By verified digest.
    shards: BTreeMap<String, HeldShard>,
    keys: Vec<KeyPair>,
    /// The next revision's configuration, which still lacks keys or endpoints.
    next: Option<EncodedSnapshot>,
    complete: Option<GatewayRevision>,
    incomplete: Option<IncompleteRevision>,
    faults: Vec<String>,
}

impl RevisionAssembler {
    pub(super) fn new(trusted: &Trusted, host: &Arc<str>) -> Self {
        Self {
            trusted: trusted.clone(),
            host: Arc::clone(host),
            ..Self::default()
        }
    }

    pub(super) fn of(gateway: &NamespacedName, trusted: &Trusted, host: &Arc<str>) -> Self {
        Self {
            gateway: Some(gateway.clone()),
            ..Self::new(trusted, host)
        }
    }

    pub(super) fn gateway(&self) -> Option<&NamespacedName> {
        self.gateway.as_ref()
    }

    pub(super) fn has_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    /// `id` is the value of the Gateway label.
    pub(super) fn set_manifest(&mut self, id: &str, object: &ConfigMap) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let read = read_manifest(id, object, &self.trusted).and_then(|(gateway, named)| {
            let later = self.is_later(name, named.stamp);
            later.map_err(|why| format!("ConfigMap {name}: {why}"))?;
            Ok((gateway, named))
        });
        match read {
            Ok((gateway, named)) => {
                let before = self.manifest.as_ref().map(|held| &held.manifest);
                self.endpoints_moved |=
                    before.is_none_or(|before| before.endpoints != named.manifest.endpoints);
                if before.is_none_or(|before| before.revision != named.manifest.revision) {
                    self.next = None;
                    self.faults.clear();
                    self.keys.clear();
                    let config = &named.manifest.config;
                    let named: BTreeSet<&str> =
                        config.iter().map(|shard| shard.sha256.as_str()).collect();
                    self.shards.retain(|held, _| named.contains(held.as_str()));
                }
                self.gateway = Some(gateway);
                self.manifest = Some(named);
                self.manifest_fault = None;
            }
            Err(fault) => self.manifest_fault = Some(fault),
        }
    }

    pub(super) fn doubt(&mut self, fault: String) {
        self.manifest_fault = Some(fault);
    }

    /// Keeps existing endpoint shards, because the watch does not send them again if the Gateway
    /// returns. Returns true if any shards remain.
    pub(super) fn withdraw(&mut self) -> bool {
        let mut live = std::mem::take(&mut self.live);
        live.retain(|_, live| !live.gone);
        *self = Self {
            live,
            stamps: std::mem::take(&mut self.stamps),
            ..Self::new(&self.trusted, &self.host)
        };
        !self.live.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gateway.is_none() && self.live.values().all(|live| live.gone)
    }

    /// Keeps the previous content if the new content cannot be used.
    pub(super) fn set_live(&mut self, name: &str, object: &ConfigMap) {
        if self.live.len() >= 2 * MAX_SHARDS && !self.live.contains_key(name) {
            return;
        }
        let others = self.live.iter().filter(|(other, _)| *other != name);
        let others: u64 = others.map(|(_, live)| live.size).sum();
        self.live.entry(name.to_owned()).or_default().gone = false;
        let believed = self.believed(name, object);
        let believed = believed.map_err(|why| format!("ConfigMap {name}: {why}"));
        let sets = believed
            .and_then(|bytes| shard::endpoint_sets(name, bytes).map_err(|error| error.to_string()));
        let live = self.live.entry(name.to_owned()).or_default();
        match sets {
            Ok(Endpoints { size, .. }) if others.saturating_add(size) > MAX_SNAPSHOT_BYTES => {
                live.fault = Some(format!(
                    "{name} and the other endpoint shards take more than {MAX_SNAPSHOT_BYTES} bytes of memory"
                ));
            }
            Ok(Endpoints { sets, size }) => {
                let sets = canonical_endpoint_entries(sets);
                self.endpoints_moved |= live.sets != sets;
                live.sets = sets;
                live.size = size;
                live.fault = None;
            }
            Err(fault) => live.fault = Some(fault),
        }
    }

    fn believed<'o>(&mut self, name: &str, object: &'o ConfigMap) -> Result<&'o [u8], String> {
        let bytes = entry(object, SHARD_ENTRY)?;
        if self.trusted.is_none() {
            return Ok(bytes);
        }
        // Take the Gateway from the signed name, because the label is not signed.
        let gateway = owner(object).ok_or("does not name its Gateway")?;
        if !name.starts_with(&shard_name(&gateway, "")) {
            return Err(format!("is not an endpoint shard of Gateway {gateway}"));
        }
        let stamp = verified(
            &gateway,
            SignedPiece::Endpoints { name },
            bytes,
            object,
            &self.trusted,
        )?;
        self.is_later(name, stamp)?;
        Ok(bytes)
    }

    fn is_later(&mut self, name: &str, stamp: Option<u64>) -> Result<(), String> {
        if let Some(stamp) = stamp {
            let known = self.stamps.get(name).copied();
            signature::follows(stamp, known).map_err(|error| error.to_string())?;
            self.stamps.insert(name.to_owned(), stamp);
        }
        Ok(())
    }

    /// Marks the shard as deleted, but keeps it in use while the manifest lists it.
    pub(super) fn drop_live(&mut self, name: &str) {
        if let Some(live) = self.live.get_mut(name) {
            live.gone = true;
        }
    }

    pub(super) fn retain_live(&mut self, there: &BTreeSet<String>) {
        for (name, live) in &mut self.live {
            live.gone |= !there.contains(name);
        }
    }

    pub(super) fn absorb(&mut self, fetched: Fetched) {
        let Fetched {
            shards,
            keys,
            faults,
        } = fetched;
        let mut held: usize = self.shards.values().map(|shard| shard.size).sum();
        self.faults = faults;
        for (digest, bytes) in shards {
            let size = bytes.len();
            held += size;
            if held > MAX_HELD_BYTES {
                self.faults.push(format!(
                    "its shards take more than {MAX_HELD_BYTES} bytes; split the Gateway's routes across several Gateways"
                ));
                break;
            }
            let content = HeldContent::Stored(bytes);
            self.shards.insert(digest, HeldShard { size, content });
        }
        if !keys.is_empty() {
            self.keys = keys;
        }
    }

    pub(super) fn advance(&mut self) -> Option<MissingPieces> {
        let (reason, stuck, need) = match self.try_complete() {
            Ok(()) => match self.trouble() {
                None => {
                    self.incomplete = None;
                    return None;
                }
                Some(trouble) => (trouble, true, None),
            },
            Err(Blocked {
                reason,
                stuck,
                need,
            }) => (reason, stuck, need),
        };
        let manifest = self.manifest.as_ref();
        self.incomplete = Some(IncompleteRevision {
            revision: manifest.map_or_else(String::new, |named| named.manifest.revision.clone()),
            reason,
            stuck,
        });
        need
    }

    pub(super) fn update(&self) -> Option<(NamespacedName, GatewayUpdate)> {
        let update = GatewayUpdate {
            complete: self.complete.clone(),
            incomplete: self.incomplete.clone(),
        };
        Some((self.gateway.clone()?, update))
    }

    /// Returns a problem with objects newer than the complete revision, which stays in use.
    fn trouble(&self) -> Option<String> {
        if let Some(fault) = &self.manifest_fault {
            return Some(fault.clone());
        }
        let (gateway, named) = (self.gateway.as_ref()?, self.manifest.as_ref()?);
        named.manifest.endpoints.iter().find_map(|reference| {
            let live = self.live.get(&shard_name(gateway, &reference.name))?;
            let fault = live.fault.as_ref()?;
            Some(format!(
                "the newest endpoints cannot be read, so the previous ones are used: {fault}"
            ))
        })
    }
}
