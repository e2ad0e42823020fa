//! Reads the previous publications on startup, because they contain the last good state.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::ListParams;
use kube::{Api, Client};
use sesame_proto::keys::{self, KeyPair};

use super::{Received, api_resource};
use crate::connection::answer;
use crate::replica::Replica;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, LastGoodKeys, ObjectKey, ServedPorts, ServedTogether};
use sesame_published::names::{GATEWAY_ENTRY, KEYS_ENTRY, PART_LABEL, Part, SERVED_TOGETHER_ENTRY};

const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
const PAGE: u32 = 50;

#[derive(Debug, Default)]
pub(crate) struct PublishedBefore {
    pub(crate) names: BTreeSet<NamespacedName>,
    pub(crate) keys: LastGoodKeys,
    /// Ports that merged Gateways last served.
    pub(crate) together: ServedTogether,
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
    let take = |manifest: &Received| {
        names.extend(published_name(manifest));
        together.extend(served_together(manifest));
    };
    each(client, namespace, (Kind::ConfigMap, Part::Manifest), take).await?;
    Ok(PublishedBefore {
        names,
        keys: LastGoodKeys::of_pairs(pairs),
        together: together.into_iter().collect(),
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

fn published_name(manifest: &Received) -> Option<NamespacedName> {
    let entry = manifest.value()["data"][GATEWAY_ENTRY].as_str();
    ObjectKey::parse_as(Kind::Gateway, entry?)
}

fn served_together(manifest: &Received) -> Option<(NamespacedName, ServedPorts)> {
    let name = published_name(manifest)?;
    let entry = manifest.value()["data"][SERVED_TOGETHER_ENTRY].as_str();
    Some((name, ServedPorts::parse(entry?)))
}
