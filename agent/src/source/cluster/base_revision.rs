//! Fast path that builds the next revision by patching the last complete one.
//!
//! Compares only the shards that changed, and patches their virtual hosts and backends into the
//! snapshot. The result must equal a join of all shards. If anything is unexpected, return `None`,
//! so that the caller joins all shards.

use std::collections::BTreeMap;

use sesame_gateway_api::api::NamespacedName;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::ShardRef;
use sesame_proto::shard::{self, Joined, MAX_CHANGED_SHARDS, ShardDelta};

use super::pieces::CheckedManifest;

/// The next revision, which may still lack keys or endpoints.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) base: BaseRevision,
    pub(super) config: Config,
}

#[derive(Debug)]
pub(super) enum Config {
    /// Joined from all shards, without keys and endpoints.
    Joined(EncodedSnapshot),
    /// Patched from the last complete revision, with keys and endpoints.
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
    /// Memory that the decoded shards use, in bytes.
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

    /// Keeps the `unnamed` shards that belong to this revision. Returns `None` if the newer
    /// manifest changes too many shards.
    pub(super) fn keep(mut self, unnamed: BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let config = &self.config;
        let ours = |digest: &String| config.iter().any(|shard| shard.sha256 == *digest);
        self.unnamed
            .extend(unnamed.into_iter().filter(|(digest, _)| ours(digest)));
        (self.unnamed.len() <= MAX_CHANGED_SHARDS).then_some(self)
    }

    /// `complete` is this revision's snapshot. `shards` contains all shards of the next revision,
    /// by digest.
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
        // If a dropped shard was fetched again, its bytes must be the same.
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
