//! What the complete revision was read from, and the short way from there to a next one in which only virtual hosts are
//! others. Pure.
//!
//! Of a route that changes one shard of many is another one. Its two versions are compared, and what differs is put in
//! its place in what is packed; the other shards are not looked into. The revision of the outcome is proven as
//! that of a whole join is. The short way never leads elsewhere than the long one: where anything is not as expected,
//! there is none.

use std::collections::BTreeMap;

use sesame_controller::api::NamespacedName;
use sesame_proto::schema::ShardRef;
use sesame_proto::shard::{self, Changed, MAX_CHANGED_SHARDS};

use super::pieces::Named;
use crate::packed::Packed;

/// What the complete revision was read from.
#[derive(Debug)]
pub(super) struct Origin {
    config: Vec<ShardRef>,
    /// How many bytes these take once decompressed.
    size: u64,
    key_secrets: usize,
    /// Stored bytes of those that later manifests have not named, by digest.
    left: BTreeMap<String, Vec<u8>>,
}

impl Origin {
    /// Of a revision that has just become complete.
    pub(super) fn new(named: &Named, size: u64) -> Self {
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

    /// The next revision, with the endpoints of the complete one, and how many bytes its shards take. None too if
    /// one of them is not among `shards`, which has them by their digest.
    pub(super) fn reroute(
        &self,
        gateway: &NamespacedName,
        complete: &Packed,
        next: &Named,
        shards: &BTreeMap<String, Vec<u8>>,
    ) -> Option<(Packed, u64)> {
        let Named {
            manifest,
            key_secrets,
        } = next;
        let all = manifest
            .config
            .iter()
            .all(|shard| shards.contains_key(&shard.sha256));
        if !all || complete.gateway() != gateway || self.key_secrets != *key_secrets {
            return None;
        }
        let stored = |digest: &str| shards.get(digest).or_else(|| self.left.get(digest));
        let Changed { hosts, size } =
            shard::changed_hosts(&self.config, self.size, &manifest.config, |digest| {
                stored(digest).map(Vec::as_slice)
            })?;
        let packed = complete.with_hosts(&hosts)?;
        (packed.revision() == manifest.revision).then_some((packed, size))
    }
}
