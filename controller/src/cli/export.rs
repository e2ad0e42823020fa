//! `sesame-controller export`: writes a Gateway's publication to a bundle.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use sesame_files::bundle::arguments::{BundleArgs, BundleKeys};
use sesame_files::bundle::{self, BundleInputs};
use sesame_kinds::api::NamespacedName;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{KeyRef, Snapshot};
use sesame_published::names::{
    DEFAULT_NAMESPACE, KEY_SECRETS_ENTRY, KEYS_ENTRY, MAX_KEY_SECRETS, key_secret_name,
    manifest_name,
};

use super::published::{self, PublishedGateway};
use crate::connection::ClusterConnection;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Gateway to export.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    gateway: NamespacedName,
    #[command(flatten)]
    bundle: BundleArgs,
    /// Namespace in which the controller publishes.
    #[arg(long, env = "SESAME_NAMESPACE", default_value = DEFAULT_NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Kubeconfig for the API server; by default $KUBECONFIG, ~/.kube/config, or the Pod's ServiceAccount.
    #[arg(long, env = "SESAME_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(super) fn main(args: &ExportArgs) -> Result<()> {
    let BundleKeys { signing, hosts } = args.bundle.keys()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (snapshot, pairs) = runtime.block_on(read(args, !hosts.is_empty()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let from = format!("{}/{}", args.namespace, manifest_name(&args.gateway));
    let label = args.bundle.label(&snapshot.gateway, now, from);
    let sequence = label.sequence;
    let bytes = bundle::make(&BundleInputs {
        label,
        snapshot: &snapshot,
        pairs: &pairs,
        hosts: &hosts,
        signing: &signing,
    })?;
    let file = &args.bundle.file;
    bundle::write(file, &bytes).with_context(|| file.display().to_string())?;
    let keys = match (published_keys(&snapshot).count(), hosts.len()) {
        (0, _) => "no private keys".to_owned(),
        (keys, 0) => format!("{keys} private keys omitted"),
        (keys, hosts) => format!("{keys} private keys encrypted to {hosts} hosts"),
    };
    writeln!(
        std::io::stdout().lock(),
        "{}: sequence number {sequence} of Gateway {}, {} bytes, {keys}",
        file.display(),
        args.gateway,
        bytes.len()
    )?;
    Ok(())
}

async fn read(args: &ExportArgs, with_keys: bool) -> Result<(Snapshot, Vec<KeyPair>)> {
    let client = ClusterConnection::open(args.kubeconfig.clone())
        .await?
        .client;
    let (gateway, namespace) = (&args.gateway, &args.namespace);
    let PublishedGateway { snapshot, data } = published::read(&client, namespace, gateway).await?;
    if !with_keys || published_keys(&snapshot).next().is_none() {
        return Ok((snapshot, Vec::new()));
    }
    let count = data
        .get(KEY_SECRETS_ENTRY)
        .and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(0);
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let mut held = Vec::new();
    for index in 0..count.min(MAX_KEY_SECRETS) {
        let name = key_secret_name(gateway, index);
        let at = || format!("Secret {namespace}/{name}");
        let secret = secrets.get(&name).await.with_context(at)?;
        let bytes = secret.data.unwrap_or_default().remove(KEYS_ENTRY);
        let bytes = bytes.with_context(|| format!("{} has no {KEYS_ENTRY}", at()))?;
        held.extend(keys::decode(&bytes.0).with_context(at)?);
    }
    let pairs = named(&snapshot, &held)?;
    Ok((snapshot, pairs))
}

/// Excludes key pairs that are files on hosts, because those are not published.
fn published_keys(snapshot: &Snapshot) -> impl Iterator<Item = &KeyRef> {
    snapshot.keys.iter().filter(|named| !named.on_host)
}

fn named(snapshot: &Snapshot, held: &[KeyPair]) -> Result<Vec<KeyPair>> {
    let pairs = published_keys(snapshot).map(|named| {
        let same = |pair: &&KeyPair| pair.name == named.name && pair.digest() == named.digest;
        let pair = held.iter().find(same).cloned();
        pair.with_context(|| {
            format!(
                "the key pair {} is not published yet; try again",
                named.name
            )
        })
    });
    pairs.collect()
}

fn gateway_name(text: &str) -> Result<NamespacedName, String> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] if !name.is_empty() => Ok(NamespacedName::new("default", name)),
        [namespace, name] if !name.is_empty() => Ok(NamespacedName::new(namespace, name)),
        _ => Err(format!("{text:?}: expected NAMESPACE/NAME")),
    }
}
