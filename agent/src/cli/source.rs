//! Options for the source of configuration.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use sesame_files::open::{self, Rule};
use sesame_proto::signature::TrustedKeys;

use crate::host::credentials;
use crate::run::Source;
use crate::source::update::Trusted;

const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// The source of configuration: exactly one of the three.
#[derive(Debug, Args)]
#[command(next_help_heading = "Source (one of --manifests, --snapshot-dir and --kube)")]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    one: OneSource,
    /// Take only snapshots that are signed by the owner of a public key in this file (PEM, Ed25519); repeatable.
    #[arg(
        long = "trusted-key",
        env = "SESAME_TRUSTED_KEYS",
        value_delimiter = ',',
        value_name = "FILE",
        conflicts_with = "manifests"
    )]
    trusted_keys: Vec<PathBuf>,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    cluster: super::cluster::ClusterArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct OneSource {
    /// Directory of Gateway API manifests, with its sub-directories; watched.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Directory of resolved snapshots: a snapshot itself (with a manifest.pb), or one snapshot directory for each
    /// Gateway. Keys are in keys.pb beside manifest.pb, which not everybody may read. Watched.
    #[arg(long, env = "SESAME_SNAPSHOT_DIR", value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
    /// Kubernetes cluster in which a controller publishes snapshots, and to which this host reports. Reached as the
    /// ServiceAccount of this Pod, or with --kubeconfig.
    #[cfg(feature = "cluster")]
    #[arg(long, env = "SESAME_KUBE")]
    kube: bool,
}

impl SourceArgs {
    /// Returns the source that the command line names.
    pub(crate) fn source(self) -> anyhow::Result<Source> {
        match self.one {
            OneSource {
                manifests: Some(dir),
                ..
            } => Ok(Source::Manifests(dir)),
            OneSource {
                snapshot_dir: Some(dir),
                ..
            } => Ok(Source::SnapshotDir(dir, trusted(&self.trusted_keys)?)),
            #[cfg(feature = "cluster")]
            OneSource { kube: true, .. } => self.cluster.source(trusted(&self.trusted_keys)?),
            _ => anyhow::bail!("name one of --manifests, --snapshot-dir and --kube"),
        }
    }
}

/// Reads the public keys of these files; without files every snapshot is trusted.
fn trusted(files: &[PathBuf]) -> anyhow::Result<Trusted> {
    let mut keys = TrustedKeys::default();
    for path in files {
        let at = || format!("--trusted-key {}", path.display());
        let path = credentials::resolve(path.clone()).context("--trusted-key")?;
        let pem = open::read(&path, Rule::Named, MAX_KEY_FILE_BYTES).with_context(at)?;
        keys.add_pem(&pem).with_context(at)?;
    }
    Ok((!files.is_empty()).then(|| Arc::new(keys)))
}
