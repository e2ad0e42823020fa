//! Builds the next revision on a fast path, by patching the complete revision.
//!
//! Compares only the shards that changed, and patches their virtual hosts and backends into the
//! snapshot. The result must equal a join of all shards. In any unexpected case, return `None`.

use std::collections::BTreeMap;

use sesame_gateway_api::api::NamespacedName;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::ShardRef;
use sesame_proto::shard::{self, Joined, MAX_CHANGED_SHARDS, ShardDelta};

use super::pieces::CheckedManifest;

/// Some of its keys or endpoints may still be missing.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) base: BaseRevision,
    pub(super) config: Config,
}

#[derive(Debug)]
pub(super) enum Config {
    /// Joined from all shards, without keys and endpoints.
    Joined(EncodedSnapshot),
    /// The patched complete revision, with keys and endpoints.
    Patched {
        encoded: EncodedSnapshot,
        /// Backends changed, so their endpoints must still be updated.
        backends_changed: bool,
    },
}

impl Next {
    pub(super) fn joined(named: &CheckedManifest, joined: Joined) -> Self {
        let Joined { config, size } = joined;
        Self {
            base: BaseRevision::new(named, size),
            config: Config::Joined(config),
        }
    }
}

#[derive(Debug)]
pub(super) struct BaseRevision {
    config: Vec<ShardRef>,
    /// Memory in bytes for the decoded shards.
    size: u64,
    key_secrets: usize,
    /// Stored shards that a newer manifest no longer lists, by digest. At most
    /// `MAX_CHANGED_SHARDS`.
    unnamed: BTreeMap<String, Vec<u8>>,
}

impl BaseRevision {
    fn new(named: &CheckedManifest, size: u64) -> Self {
        Self {
            config: named.manifest.config.clone(),
            size,
            key_secrets: named.key_secrets,
            unnamed: BTreeMap::new(),
        }
    }

    /// Keeps `unnamed` shards that belong to this revision. Returns `None` if there are too many,
    /// because the newer manifest differs too much.
    pub(super) fn keep(mut self, unnamed: BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let config = &self.config;
        let ours = |digest: &String| config.iter().any(|shard| shard.sha256 == *digest);
        self.unnamed
            .extend(unnamed.into_iter().filter(|(digest, _)| ours(digest)));
        (self.unnamed.len() <= MAX_CHANGED_SHARDS).then_some(self)
    }

    /// `complete` is the snapshot of this revision. `shards` contains all shards of the next
    /// revision, by digest.
    pub(super) fn patch(
        &self,
        gateway: &NamespacedName,
        complete: &EncodedSnapshot,
        next: &CheckedManifest,
        shards: &BTreeMap<String, Vec<u8>>,
    ) -> Option<Next> {
        let CheckedManifest {
            manifest,
            key_secrets,
            stamp: _,
        } = next;
        // A shard that was dropped and fetched again must not have changed.
        let same =
            |digest: &String, bytes| self.unnamed.get(digest).is_none_or(|held| held == bytes);
        let all = manifest.config.iter().all(|shard| {
            let digest = &shard.sha256;
            shards.get(digest).is_some_and(|bytes| same(digest, bytes))
        });
        let same_gateway = complete.gateway() == format!("Gateway/{gateway}");
        if !all || !same_gateway || self.key_secrets != *key_secrets {
            return None;
        }
        let stored = |digest: &str| {
            let held = shards.get(digest).or_else(|| self.unnamed.get(digest));
            held.map(Vec::as_slice)
        };
        let ShardDelta {
            route_tables,
            backends,
            size,
        } = shard::delta(&self.config, self.size, &manifest.config, stored)?;
        let encoded = complete.with_changed_hosts(&route_tables)?;
        let encoded = encoded.with_changed_backends(&backends)?;
        (encoded.config_digest() == manifest.revision).then(|| Next {
            base: Self::new(next, size),
            config: Config::Patched {
                encoded,
                backends_changed: !backends.is_empty(),
            },
        })
    }
}
