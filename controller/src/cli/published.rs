//! Reads a Gateway's publication like an agent, but with the caller's permissions.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::{Manifest, Snapshot};
use sesame_proto::{bounds, shard};
use sesame_published::names::{MANIFEST_ENTRY, SHARD_ENTRY, manifest_name, shard_name};

pub(super) struct PublishedGateway {
    pub(super) snapshot: Snapshot,
    pub(super) data: BTreeMap<String, String>,
}

pub(super) async fn read(
    client: &Client,
    namespace: &str,
    gateway: &NamespacedName,
) -> Result<PublishedGateway> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let entry = async |name: &str, entry: &str| -> Result<(ConfigMap, Vec<u8>)> {
        let at = || format!("ConfigMap {namespace}/{name}");
        let object = config_maps.get(name).await.with_context(at)?;
        let content = object.binary_data.as_ref().and_then(|all| all.get(entry));
        let content = content.with_context(|| format!("{} has no {entry}", at()))?;
        let content = content.0.clone();
        Ok((object, content))
    };
    let name = manifest_name(gateway);
    let (object, bytes) = entry(&name, MANIFEST_ENTRY).await?;
    let manifest: Manifest = bounds::manifest(&bytes).with_context(|| name.clone())?;
    shard::check(&manifest).with_context(|| name.clone())?;
    ensure!(
        manifest.gateway == format!("Gateway/{gateway}"),
        "ConfigMap {namespace}/{name} belongs to {:?}",
        manifest.gateway
    );
    let mut shards = BTreeMap::new();
    for reference in manifest.config.iter().chain(&manifest.endpoints) {
        let (_, bytes) = entry(&shard_name(gateway, &reference.name), SHARD_ENTRY).await?;
        shards.insert(reference.name.clone(), bytes);
    }
    let snapshot = shard::join(&manifest, &shards)
        .context("the publication is inconsistent; it may be changing, so try again in a moment")?;
    Ok(PublishedGateway {
        snapshot,
        data: object.data.unwrap_or_default(),
    })
}
