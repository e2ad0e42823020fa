//! Reads the previous publications on startup, because they contain the last good state.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::ListParams;
use kube::{Api, Client};
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::{bounds, shard};

use super::{Received, api_resource};
use crate::connection::answer;
use crate::engine::PublishedSets;
use crate::replica::Replica;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, LastGoodKeys, ObjectKey, ServedPorts, ServedTogether};
use sesame_published::names::{
    GATEWAY_ANNOTATION, GATEWAY_ENTRY, KEYS_ENTRY, MANIFEST_ENTRY, PART_LABEL, Part,
    SERVED_TOGETHER_ENTRY, SHARD_ENTRY,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
const PAGE: u32 = 50;

#[derive(Debug, Default)]
pub(crate) struct PublishedBefore {
    pub(crate) names: BTreeSet<NamespacedName>,
    pub(crate) keys: LastGoodKeys,
    /// Ports that merged Gateways last served.
    pub(crate) together: ServedTogether,
    /// Endpoint sets of Gateways with a rollout.
    pub(crate) endpoint_sets: PublishedSets,
}

/// Retries until the read succeeds: without the last good keys, a broken Secret would withdraw its
/// listener.
pub(super) async fn published_before(replica: &Replica) -> PublishedBefore {
    loop {
        match read(&replica.client, &replica.namespace).await {
            Ok(before) => return before,
            Err(error) => replica
                .failures
                .record("published keys and manifests", &error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read(client: &Client, namespace: &str) -> kube::Result<PublishedBefore> {
    let mut pairs = Vec::new();
    let take = |secret: &Received| pairs.extend(pairs_of(secret));
    each(client, namespace, (Kind::Secret, Part::Keys), take).await?;
    let (mut names, mut together) = (BTreeSet::new(), Vec::new());
    let mut endpoint_sets = PublishedSets::new();
    let take = |manifest: &Received| {
        let name = published_name(manifest);
        names.extend(name.clone());
        together.extend(served_together(manifest));
        let staged = name.filter(|_| has_rollout(manifest));
        endpoint_sets.extend(staged.map(|name| (name, BTreeSet::new())));
    };
    each(client, namespace, (Kind::ConfigMap, Part::Manifest), take).await?;
    if !endpoint_sets.is_empty() {
        let take = |shard: &Received| {
            let owner = shard.value()["metadata"]["annotations"][GATEWAY_ANNOTATION].as_str();
            let owner = owner.and_then(|owner| owner.split_once('/'));
            let owner = owner.map(|(namespace, name)| NamespacedName::new(namespace, name));
            if let Some(sets) = owner.and_then(|owner| endpoint_sets.get_mut(&owner)) {
                sets.extend(sets_of(shard));
            }
        };
        each(client, namespace, (Kind::ConfigMap, Part::Endpoints), take).await?;
    }
    Ok(PublishedBefore {
        names,
        keys: LastGoodKeys::of_pairs(pairs),
        together: together.into_iter().collect(),
        endpoint_sets,
    })
}

async fn each(
    client: &Client,
    namespace: &str,
    (kind, part): (Kind, Part),
    mut take: impl FnMut(&Received),
) -> kube::Result<()> {
    let resource = api_resource(kind, "v1");
    let api: Api<Received> = Api::namespaced_with(client.clone(), namespace, &resource);
    let label = format!("{PART_LABEL}={}", part.as_str());
    let mut parameters = ListParams::default().labels(&label).limit(PAGE);
    loop {
        let page = answer(TIMEOUT, api.list(&parameters)).await?;
        page.items.iter().for_each(&mut take);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters = parameters.continue_token(&token),
            _ => return Ok(()),
        }
    }
}

/// Returns nothing if the content is invalid.
fn pairs_of(secret: &Received) -> Vec<KeyPair> {
    let entry = secret.value()["data"][KEYS_ENTRY].as_str();
    let bytes = entry.and_then(|entry| STANDARD.decode(entry).ok());
    let pairs = bytes.and_then(|bytes| keys::decode(&bytes).ok());
    pairs.unwrap_or_default()
}

fn has_rollout(manifest: &Received) -> bool {
    let manifest = entry(manifest, MANIFEST_ENTRY).and_then(|it| bounds::manifest(&it).ok());
    manifest.is_some_and(|manifest| manifest.rollout.is_some())
}

/// Returns nothing if the content is invalid.
fn sets_of(shard: &Received) -> Vec<String> {
    let bytes = entry(shard, SHARD_ENTRY);
    let read = bytes.and_then(|bytes| shard::endpoint_sets("endpoints", &bytes).ok());
    let sets = read.map(|read| read.sets).unwrap_or_default();
    sets.into_iter().map(|set| set.name).collect()
}

fn entry(object: &Received, name: &str) -> Option<Vec<u8>> {
    let text = object.value()["binaryData"][name].as_str()?;
    STANDARD.decode(text).ok()
}

fn published_name(manifest: &Received) -> Option<NamespacedName> {
    let entry = manifest.value()["data"][GATEWAY_ENTRY].as_str();
    ObjectKey::parse_as(Kind::Gateway, entry?)
}

fn served_together(manifest: &Received) -> Option<(NamespacedName, ServedPorts)> {
    let name = published_name(manifest)?;
    let entry = manifest.value()["data"][SERVED_TOGETHER_ENTRY].as_str();
    Some((name, ServedPorts::parse(entry?)))
}
