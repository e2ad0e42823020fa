//! Options for a cluster as the configuration source.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{DEFAULT_FLEET, DEFAULT_NAMESPACE, is_host_name};

use sesame_engine::Source;
use sesame_host::credentials;
use sesame_sources::cluster::ClusterSettings;
use sesame_sources::update::Trusted;

use super::host::label;

#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    /// Kubeconfig file for reaching the cluster from outside; its current context is used.
    #[arg(long, env = "SESAME_KUBECONFIG", value_name = "FILE", conflicts_with_all = ["manifests", "snapshot_dir", "bundle_dir"])]
    kubeconfig: Option<PathBuf>,
    /// Namespace in which the controller publishes.
    #[arg(
        long,
        env = "SESAME_NAMESPACE",
        default_value = DEFAULT_NAMESPACE,
        value_name = "NAMESPACE",
        value_parser = dns_label,
        conflicts_with_all = ["manifests", "snapshot_dir", "bundle_dir"]
    )]
    namespace: String,
    /// Fleet to which this host belongs.
    #[arg(
        long,
        env = "SESAME_FLEET",
        default_value = DEFAULT_FLEET,
        value_name = "NAME",
        value_parser = label,
        conflicts_with_all = ["manifests", "snapshot_dir", "bundle_dir"]
    )]
    fleet: String,
    /// Name of this host in its reports; the system's host name by default.
    #[arg(long = "host", env = "SESAME_HOST", value_name = "NAME", conflicts_with_all = ["manifests", "snapshot_dir", "bundle_dir"])]
    host_name: Option<String>,
}

impl ClusterArgs {
    /// Fails if this host has no valid name.
    pub(super) fn source(
        self,
        trusted: Trusted,
        gateways: Vec<NamespacedName>,
        zone: String,
    ) -> anyhow::Result<Source> {
        let Self {
            kubeconfig,
            namespace,
            fleet,
            host_name,
        } = self;
        let kubeconfig = kubeconfig.map(credentials::resolve).transpose();
        let kubeconfig = kubeconfig.context("--kubeconfig")?;
        let host = match host_name {
            Some(host) => host,
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .context("cannot read the host name; set --host")?
                .trim()
                .to_owned(),
        };
        if host.is_empty() {
            anyhow::bail!("this host has no host name; set --host");
        }
        if !is_host_name(&host) {
            anyhow::bail!(
                "--host {host:?}: expected up to 253 letters, digits, \"-\", \"_\" and \".\", starting and ending with a letter or digit"
            );
        }
        Ok(Source::Cluster(ClusterSettings {
            kubeconfig,
            namespace,
            gateways,
            fleet,
            host,
            zone,
            trusted,
            stored: None,
        }))
    }
}

fn dns_label(text: &str) -> Result<String, String> {
    if sesame_proto::dns_name::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?}: not a valid namespace name"))
    }
}
