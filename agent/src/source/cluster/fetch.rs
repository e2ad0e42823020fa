//! Reads what a revision names and nobody has told: configuration shards, and key Secrets.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use sesame_gateway_api::api::NamespacedName;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::ShardRef;
use sesame_proto::shard;
use sesame_published::names::{
    KEYS_ENTRY, SHARD_ENTRY, key_secret_name, manifest_name, shard_name,
};

use super::connect::describe_error;

const TIMEOUT: Duration = Duration::from_secs(15);
/// Requests at a time, for one Gateway.
const AT_ONCE: usize = 8;

/// What is missing of one Gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MissingPieces {
    /// Configuration shards.
    pub(super) shards: Vec<ShardRef>,
    /// How many key Secrets there are to look through.
    pub(super) key_secrets: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// Stored bytes whose digest fits, by that digest.
    pub(super) shards: Vec<(String, Vec<u8>)>,
    /// What the Secrets hold.
    pub(super) keys: Vec<KeyPair>,
    /// What could not be had, and why.
    pub(super) faults: Vec<String>,
}

enum Piece {
    Shard(ShardRef),
    Keys(usize),
}

enum Got {
    Shard(String, Vec<u8>),
    Keys(Vec<KeyPair>),
}

/// Fetches all of it; what fails is said.
pub(super) async fn fetch(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
    need: MissingPieces,
) -> Fetched {
    let MissingPieces {
        shards,
        key_secrets,
    } = need;
    let shards = shards.into_iter().map(Piece::Shard);
    let pieces = shards.chain((0..key_secrets).map(Piece::Keys));
    let mut results = stream::iter(pieces)
        .map(|piece| {
            let client = client.clone();
            async move {
                match piece {
                    Piece::Shard(reference) => {
                        one_shard(client, namespace, gateway, reference).await
                    }
                    Piece::Keys(index) => one_secret(client, namespace, gateway, index).await,
                }
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut fetched = Fetched::default();
    while let Some(result) = results.next().await {
        match result {
            Ok(Got::Shard(digest, bytes)) => fetched.shards.push((digest, bytes)),
            Ok(Got::Keys(keys)) => fetched.keys.extend(keys),
            Err(fault) => fetched.faults.push(fault),
        }
    }
    fetched.faults.sort();
    fetched
}

async fn one_shard(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
    reference: ShardRef,
) -> Result<Got, String> {
    let name = shard_name(gateway, &reference.name);
    let at = |why: String| format!("ConfigMap {namespace}/{name}: {why}");
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let object = get(&api, &name).await.map_err(at)?;
    let object = object.ok_or_else(|| at(NOT_THERE.to_owned()))?;
    let bytes = object
        .binary_data
        .and_then(|mut data| data.remove(SHARD_ENTRY))
        .ok_or_else(|| at(format!("has no binaryData entry {SHARD_ENTRY}")))?
        .0;
    shard::check_digest(&reference, &bytes).map_err(|error| at(error.to_string()))?;
    Ok(Got::Shard(reference.sha256, bytes))
}

async fn one_secret(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
    index: usize,
) -> Result<Got, String> {
    let name = key_secret_name(gateway, index);
    let at = |why: String| format!("Secret {namespace}/{name}: {why}");
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let object = get(&api, &name).await.map_err(at)?;
    let object = object.ok_or_else(|| at(NOT_THERE.to_owned()))?;
    let bytes = object
        .data
        .and_then(|mut data| data.remove(KEYS_ENTRY))
        .ok_or_else(|| at(format!("has no data entry {KEYS_ENTRY}")))?
        .0;
    keys::decode(&bytes)
        .map(Got::Keys)
        .map_err(|error| at(error.to_string()))
}

/// Whether a Gateway's manifest is really gone; its content if not.
pub(super) async fn look_for_manifest(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
) -> Result<Option<ConfigMap>, String> {
    let name = manifest_name(gateway);
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    get(&api, &name)
        .await
        .map_err(|why| format!("ConfigMap {namespace}/{name}: {why}"))
}

const NOT_THERE: &str = "is not there";

async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, String>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match tokio::time::timeout(TIMEOUT, api.get_opt(name)).await {
        Ok(result) => result.map_err(|error| describe_error(&error)),
        Err(_) => Err(format!(
            "the API server has not answered within {TIMEOUT:?}"
        )),
    }
}
