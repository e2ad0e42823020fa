//! Reads the keys that were published last, once: after a restart, they are the memory of what was good.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::ListParams;
use kube::{Api, Client};
use sesame_proto::keys::{self, KeyPair};

use super::{Received, api_resource};
use crate::connection::answer;
use sesame_gateway_api::world::{Kind, LastGoodKeys};
use sesame_published::names::{KEYS_ENTRY, PART_LABEL, Part};

/// Time that one list may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a list that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of Secrets in a page of a list.
const PAGE: u32 = 50;

/// Reads the keys that were published last, and tries again until there is an answer: without one, a broken Secret would
/// take its listener away.
pub(super) async fn published_keys(client: &Client, namespace: &str) -> LastGoodKeys {
    loop {
        match answer(TIMEOUT, list(client, namespace)).await {
            Ok(pairs) => return LastGoodKeys::of_pairs(pairs),
            Err(error) => {
                tracing::warn!(%error, "the keys that were published last cannot be read yet");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn list(client: &Client, namespace: &str) -> kube::Result<Vec<KeyPair>> {
    let resource = api_resource(Kind::Secret, "v1");
    let api: Api<Received> = Api::namespaced_with(client.clone(), namespace, &resource);
    let label = format!("{PART_LABEL}={}", Part::Keys.as_str());
    let mut parameters = ListParams::default().labels(&label).limit(PAGE);
    let mut pairs = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        for secret in page.items {
            pairs.extend(pairs_of(&secret));
        }
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters = parameters.continue_token(&token),
            _ => return Ok(pairs),
        }
    }
}

/// Returns the key pairs of a published Secret; none if it is not as it was published.
fn pairs_of(secret: &Received) -> Vec<KeyPair> {
    let entry = secret.value()["data"][KEYS_ENTRY].as_str();
    let bytes = entry.and_then(|entry| STANDARD.decode(entry).ok());
    let pairs = bytes.and_then(|bytes| keys::decode(&bytes).ok());
    pairs.unwrap_or_default()
}
