//! Arguments that say where configuration comes from.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use sesame_files::open::{self, Rule};
use sesame_proto::signature::TrustedKeys;

use crate::run::Source;
use crate::source::update::Trusted;

const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// Where configuration comes from: one of the three ways.
#[derive(Debug, Args)]
#[command(next_help_heading = "Source (one of --manifests, --snapshot-dir and --kube)")]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    one: OneSource,
    /// Take only snapshots that were signed with the private key of one of the public keys in this file (PEM, Ed25519);
    /// repeatable.
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
    cluster: ClusterArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct OneSource {
    /// Gateway API manifests in this directory and its sub-directories; watched.
    #[arg(long, env = "SESAME_MANIFESTS", value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Snapshots that somebody else has resolved: this directory is one (it has a manifest.pb), or holds one for each
    /// Gateway. Keys are in keys.pb beside manifest.pb, not readable by everybody. Watched.
    #[arg(long, env = "SESAME_SNAPSHOT_DIR", value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
    /// Snapshots as a controller publishes them in a Kubernetes cluster; this host reports there. Reached as the
    /// ServiceAccount of this Pod, or with --kubeconfig.
    #[cfg(feature = "cluster")]
    #[arg(long, env = "SESAME_KUBE")]
    kube: bool,
}

#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
struct ClusterArgs {
    /// How to reach the cluster from outside; its current context is used.
    #[arg(
        long,
        env = "SESAME_KUBECONFIG",
        value_name = "FILE",
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    kubeconfig: Option<PathBuf>,
    /// The namespace that the controller publishes in.
    #[arg(
        long,
        env = "SESAME_NAMESPACE",
        default_value = sesame_published::names::DEFAULT_NAMESPACE,
        value_name = "NAMESPACE",
        value_parser = dns_label,
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    namespace: String,
    /// Only this Gateway; repeatable. Those of the fleet otherwise.
    #[arg(
        long,
        env = "SESAME_GATEWAYS",
        value_delimiter = ',',
        value_name = "NAMESPACE/NAME",
        value_parser = gateway,
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    gateway: Vec<sesame_gateway_api::api::NamespacedName>,
    /// The fleet of hosts that this one belongs to.
    #[arg(
        long,
        env = "SESAME_FLEET",
        default_value = sesame_published::names::DEFAULT_FLEET,
        value_name = "NAME",
        value_parser = label,
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    fleet: String,
    /// What this host calls itself in what it reports; its host name by default.
    #[arg(
        long = "host",
        env = "SESAME_HOST",
        value_name = "NAME",
        conflicts_with_all = ["manifests", "snapshot_dir"]
    )]
    host_name: Option<String>,
}

impl SourceArgs {
    /// Which one.
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

/// The keys of all these files; everybody is believed if there are none.
fn trusted(files: &[PathBuf]) -> anyhow::Result<Trusted> {
    let mut keys = TrustedKeys::default();
    for path in files {
        let at = || format!("--trusted-key {}", path.display());
        let pem = open::read(path, Rule::Named, MAX_KEY_FILE_BYTES).with_context(at)?;
        keys.add_pem(&pem).with_context(at)?;
    }
    Ok((!files.is_empty()).then(|| Arc::new(keys)))
}

#[cfg(feature = "cluster")]
impl ClusterArgs {
    fn source(self, trusted: Trusted) -> anyhow::Result<Source> {
        let Self {
            kubeconfig,
            namespace,
            gateway: gateways,
            fleet,
            host_name,
        } = self;
        let host = match host_name {
            Some(host) => host,
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("the host's name cannot be read; give one with --host")?
                .trim()
                .to_owned(),
        };
        if host.is_empty() {
            anyhow::bail!("this host has no name; give it one with --host");
        }
        if !sesame_published::names::is_host_name(&host) {
            anyhow::bail!(
                "--host {host:?}: expected up to 253 letters, digits, \"-\", \"_\" and \".\", the first and last a letter or digit"
            );
        }
        Ok(Source::Cluster(crate::source::cluster::Settings {
            kubeconfig,
            namespace,
            gateways,
            fleet,
            host,
            trusted,
        }))
    }
}

#[cfg(feature = "cluster")]
fn gateway(text: &str) -> Result<sesame_gateway_api::api::NamespacedName, String> {
    let name = super::render::gateway_name(text)?;
    crate::source::update::gateway_of(&format!("Gateway/{name}"))
        .ok_or_else(|| format!("{text:?}: no Gateway can be called so"))
}

/// What can be a label's value.
#[cfg(feature = "cluster")]
fn label(text: &str) -> Result<String, String> {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.len() <= 63
        && text.chars().all(legal)
        && ends(text.chars().next())
        && ends(text.chars().next_back())
    {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?}: expected up to 63 letters, digits, \"-\", \"_\" and \".\""
        ))
    }
}

#[cfg(feature = "cluster")]
fn dns_label(text: &str) -> Result<String, String> {
    if sesame_proto::dns_name::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?}: no namespace can be called so"))
    }
}
