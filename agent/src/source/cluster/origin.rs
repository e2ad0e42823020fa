//! What the complete revision was read from, and the short way from there to a next one in which only virtual hosts are
//! others. Pure.
//!
//! Of a route that changes one shard of many is another one. Its two versions are compared, and what differs is put in
//! its place in what is packed; the other shards are not looked into. The revision of the outcome is proven as
//! that of a whole join is. The short way never leads elsewhere than the long one: where anything is not as expected,
//! there is none.

use std::collections::BTreeMap;

use sesame_gateway_api::api::NamespacedName;
use sesame_proto::schema::{ShardRef, Snapshot};
use sesame_proto::shard::{self, Joined, MAX_CHANGED_SHARDS};

use super::pieces::CheckedManifest;
use sesame_proto::encoded::EncodedSnapshot;

/// The next revision, as long as keys or endpoints of it are missing.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) origin: Origin,
    pub(super) config: Config,
}

/// A configuration whose revision is proven.
#[derive(Debug)]
pub(super) enum Config {
    /// Read from all of its shards.
    Whole(Snapshot),
    /// The complete revision with other virtual hosts; its keys and endpoints are those of that.
    Rerouted(EncodedSnapshot),
}

impl Next {
    /// The long way.
    pub(super) fn joined(named: &CheckedManifest, joined: Joined) -> Self {
        let Joined { config, size } = joined;
        Self {
            origin: Origin::new(named, size),
            config: Config::Whole(config),
        }
    }
}

/// What a revision was read from.
#[derive(Debug)]
pub(super) struct Origin {
    config: Vec<ShardRef>,
    /// How much memory the values of these take.
    size: u64,
    key_secrets: usize,
    /// Stored bytes of those that later manifests have not named, by digest; no more than could be compared.
    left: BTreeMap<String, Vec<u8>>,
}

impl Origin {
    fn new(named: &CheckedManifest, size: u64) -> Self {
        Self {
            config: named.manifest.config.clone(),
            size,
            key_secrets: named.key_secrets,
            left: BTreeMap::new(),
        }
    }

    /// Takes what it needs of the shards that another manifest does not name. None if that manifest is too far away.
    pub(super) fn keep(mut self, unnamed: BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let config = &self.config;
        let ours = |digest: &String| config.iter().any(|shard| shard.sha256 == *digest);
        self.left
            .extend(unnamed.into_iter().filter(|(digest, _)| ours(digest)));
        (self.left.len() <= MAX_CHANGED_SHARDS).then_some(self)
    }

    /// The short way. `complete` is what came of this origin; `shards` are by their digest, and have to be all of the
    /// next revision's.
    pub(super) fn reroute(
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
        // One that was given up and read again is to be what it was.
        let same =
            |digest: &String, bytes| self.left.get(digest).is_none_or(|known| known == bytes);
        let all = manifest.config.iter().all(|shard| {
            let digest = &shard.sha256;
            shards.get(digest).is_some_and(|bytes| same(digest, bytes))
        });
        if !all
            || complete.gateway() != format!("Gateway/{gateway}")
            || self.key_secrets != *key_secrets
        {
            return None;
        }
        let stored = |digest: &str| {
            let held = shards.get(digest).or_else(|| self.left.get(digest));
            held.map(Vec::as_slice)
        };
        let changed = shard::changed_hosts(&self.config, self.size, &manifest.config, stored)?;
        let packed = complete.with_hosts(&changed.hosts)?;
        (packed.config_digest() == manifest.revision).then(|| Next {
            origin: Self::new(next, changed.size),
            config: Config::Rerouted(packed),
        })
    }
}
