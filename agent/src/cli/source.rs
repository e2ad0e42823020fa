//! Options for the configuration source.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::signature::TrustedKeys;

use super::render::gateway_name;
use sesame_engine::Source;
use sesame_host::credentials;
use sesame_sources::bundles::BundleSettings;
use sesame_sources::update::{Trusted, gateway_of};

const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// The configuration source; exactly one must be given.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Source (one of --manifests, --snapshot-dir, --bundle-dir and --kube)"
)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    one: OneSource,
    /// Accept only snapshots signed by a public key in this file (PEM, Ed25519); repeatable.
    #[arg(
        long = "trusted-key",
        env = "SESAME_TRUSTED_KEYS",
        value_delimiter = ',',
        value_name = "FILE",
        conflicts_with = "manifests"
    )]
    trusted_keys: Vec<PathBuf>,
    /// Number of distinct trusted keys that must have signed a bundle.
    #[arg(
        long,
        env = "SESAME_REQUIRE_SIGNERS",
        default_value_t = 1,
        value_name = "K",
        value_parser = clap::value_parser!(u8).range(1..=8),
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    require_signers: u8,
    /// Stage of this host in staged rollouts of bundles: 1 is first. By default, the host comes
    /// after all stages.
    #[arg(
        long,
        env = "SESAME_ROLLOUT_RING",
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=17),
        requires = "bundle_dir"
    )]
    rollout_ring: Option<u8>,
    /// Serve only this Gateway, from bundles or a cluster; repeatable. All Gateways by default.
    #[arg(
        long,
        env = "SESAME_GATEWAYS",
        value_delimiter = ',',
        value_name = "NAMESPACE/NAME",
        value_parser = gateway,
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    gateway: Vec<NamespacedName>,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    cluster: super::cluster::ClusterArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct OneSource {
    /// Directory of Gateway API manifests, including subdirectories; watched for changes.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Directory of resolved snapshots: either a single snapshot (with a manifest.pb), or one
    /// directory per Gateway; watched for changes. Private keys are read from keys.pb.
    #[arg(long, env = "SESAME_SNAPSHOT_DIR", value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
    /// Directory of signed bundles (*.bundle) from `sesame-agent bundle create` or
    /// `sesame-controller export`; watched for changes. Only bundles signed by a key from
    /// --trusted-key or `sesame-agent trust` are accepted.
    #[arg(long, env = "SESAME_BUNDLE_DIR", value_name = "DIR")]
    bundle_dir: Option<PathBuf>,
    /// Serve the snapshots that a controller publishes in a Kubernetes cluster. Connects with
    /// --kubeconfig, or as this Pod's ServiceAccount.
    #[cfg(feature = "cluster")]
    #[arg(long, env = "SESAME_KUBE")]
    kube: bool,
}

impl SourceArgs {
    /// `zone` is shown in the cluster's inventory.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "only clusters have an inventory")
    )]
    pub(crate) fn source(self, zone: &str) -> anyhow::Result<Source> {
        match self.one {
            OneSource {
                manifests: Some(dir),
                ..
            } => Ok(Source::Manifests(dir)),
            OneSource {
                snapshot_dir: Some(dir),
                ..
            } => Ok(Source::SnapshotDir(dir, trusted(&self.trusted_keys)?)),
            OneSource {
                bundle_dir: Some(directory),
                ..
            } => Ok(Source::Bundles(BundleSettings {
                directory,
                trusted: read_trusted(&self.trusted_keys)?,
                required: self.require_signers.into(),
                gateways: self.gateway,
                ring: self.rollout_ring,
            })),
            #[cfg(feature = "cluster")]
            OneSource { kube: true, .. } => {
                self.cluster
                    .source(trusted(&self.trusted_keys)?, self.gateway, zone.to_owned())
            }
            _ => anyhow::bail!(
                "no source: set one of --manifests, --snapshot-dir, --bundle-dir and --kube"
            ),
        }
    }
}

/// If no key files are given, unsigned snapshots are trusted.
fn trusted(files: &[PathBuf]) -> anyhow::Result<Trusted> {
    let keys = read_trusted(files)?;
    Ok((!files.is_empty()).then(|| Arc::new(keys)))
}

pub(super) fn read_trusted(files: &[PathBuf]) -> anyhow::Result<TrustedKeys> {
    let mut keys = TrustedKeys::default();
    for path in files {
        let at = || format!("--trusted-key {}", path.display());
        let path = credentials::resolve(path.clone()).context("--trusted-key")?;
        let pem = open::read(&path, Rule::Named, MAX_KEY_FILE_BYTES).with_context(at)?;
        keys.add_pem(&pem).with_context(at)?;
    }
    Ok(keys)
}

fn gateway(text: &str) -> Result<NamespacedName, String> {
    let name = gateway_name(text)?;
    gateway_of(&format!("Gateway/{name}"))
        .ok_or_else(|| format!("{text:?}: not a valid Gateway name"))
}
