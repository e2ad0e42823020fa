//! Fetches the pieces of a revision that are not watched: configuration shards and key Secrets.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::GetParams;
use kube::{Api, Client};
use sesame_kinds::api::NamespacedName;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::ShardRef;
use sesame_proto::shard;
use sesame_published::names::{
    KEYS_ENTRY, SHARD_ENTRY, key_secret_name, manifest_name, shard_name,
};

use super::connect::{describe_error, within};

const TIMEOUT: Duration = Duration::from_secs(15);
const AT_ONCE: usize = 8;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MissingPieces {
    pub(super) shards: Vec<ShardRef>,
    pub(super) key_secrets: usize,
}

#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// Verified digest and content.
    pub(super) shards: Vec<(String, Vec<u8>)>,
    pub(super) keys: Vec<KeyPair>,
    pub(super) faults: Vec<String>,
}

pub(super) async fn fetch(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
    missing: MissingPieces,
) -> Fetched {
    let MissingPieces {
        shards,
        key_secrets,
    } = missing;
    let shard = |reference| one_shard(client.clone(), namespace, gateway, reference);
    let shards = stream::iter(shards).map(shard).buffer_unordered(AT_ONCE);
    let secret = |index| one_secret(client.clone(), namespace, gateway, index);
    let secrets = stream::iter(0..key_secrets).map(secret);
    let mut fetched = Fetched::default();
    for shard in shards.collect::<Vec<_>>().await {
        match shard {
            Ok(shard) => fetched.shards.push(shard),
            Err(fault) => fetched.faults.push(fault),
        }
    }
    let secrets = secrets.buffer_unordered(AT_ONCE);
    for keys in secrets.collect::<Vec<_>>().await {
        match keys {
            Ok(keys) => fetched.keys.extend(keys),
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
) -> Result<(String, Vec<u8>), String> {
    let name = shard_name(gateway, &reference.name);
    let at = |why: String| format!("ConfigMap {namespace}/{name}: {why}");
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let read = |object: Option<ConfigMap>| -> Result<Vec<u8>, String> {
        let object = object.ok_or_else(|| at(MISSING.to_owned()))?;
        let bytes = object
            .binary_data
            .and_then(|mut data| data.remove(SHARD_ENTRY))
            .ok_or_else(|| at(format!("has no binaryData entry {SHARD_ENTRY}")))?
            .0;
        shard::check_digest(&reference, &bytes).map_err(|error| at(error.to_string()))?;
        Ok(bytes)
    };
    // Read from the API server's cache, to spare etcd one query per host. The digest proves that
    // the content is correct.
    let bytes = match read(cached(&api, &name).await.map_err(at)?) {
        Ok(bytes) => bytes,
        Err(_) => read(get(&api, &name).await.map_err(at)?)?,
    };
    Ok((reference.sha256, bytes))
}

async fn one_secret(
    client: Client,
    namespace: &str,
    gateway: &NamespacedName,
    index: usize,
) -> Result<Vec<KeyPair>, String> {
    let name = key_secret_name(gateway, index);
    let at = |why: String| format!("Secret {namespace}/{name}: {why}");
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let object = get(&api, &name).await.map_err(at)?;
    let object = object.ok_or_else(|| at(MISSING.to_owned()))?;
    let bytes = object
        .data
        .and_then(|mut data| data.remove(KEYS_ENTRY))
        .ok_or_else(|| at(format!("has no data entry {KEYS_ENTRY}")))?
        .0;
    keys::decode(&bytes).map_err(|error| at(error.to_string()))
}

/// Returns `None` only if the manifest does not exist.
pub(super) async fn fetch_manifest(
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

const MISSING: &str = "is missing";

/// Reads from the API server's cache, which may be slightly outdated.
async fn cached<K>(api: &Api<K>, name: &str) -> Result<Option<K>, String>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match within(TIMEOUT, api.get_with(name, &GetParams::any())).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(describe_error(&error)),
    }
}

async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, String>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = within(TIMEOUT, api.get_opt(name)).await;
    found.map_err(|error| describe_error(&error))
}
