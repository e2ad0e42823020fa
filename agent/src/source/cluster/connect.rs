//! Who talks to which API server about what.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use kube::{Client, Config};
use sesame_gateway_api::api::NamespacedName;
use sesame_published::kubeconfig;
use sesame_published::names::{FLEET_LABEL, GATEWAY_LABEL, PART_LABEL, Part, gateway_id};

use crate::source::update::Trusted;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where snapshots are published, and which of them are for this host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to reach the cluster; the ServiceAccount of the Pod if not given.
    pub kubeconfig: Option<PathBuf>,
    /// Where everything is published.
    pub namespace: String,
    /// Only these Gateways; those of the fleet if there are none.
    pub gateways: Vec<NamespacedName>,
    /// The fleet that this host belongs to.
    pub fleet: String,
    /// What this host calls itself.
    pub host: String,
    /// Who is believed; whoever can write there if nobody is named.
    pub trusted: Trusted,
}

impl Settings {
    /// The labels of manifests and endpoint shards for this host.
    pub(super) fn selector(&self) -> String {
        let parts = format!(
            "{PART_LABEL} in ({},{})",
            Part::Manifest.as_str(),
            Part::Endpoints.as_str()
        );
        if self.gateways.is_empty() {
            return format!("{FLEET_LABEL}={},{parts}", self.fleet);
        }
        let ids: Vec<String> = self.gateways.iter().map(gateway_id).collect();
        format!("{GATEWAY_LABEL} in ({}),{parts}", ids.join(","))
    }

    /// Whether a manifest with this label is for this host.
    pub(super) fn takes(&self, gateway: &NamespacedName, fleet: Option<&str>) -> bool {
        if self.gateways.is_empty() {
            fleet == Some(self.fleet.as_str())
        } else {
            self.gateways.contains(gateway)
        }
    }
}

/// A client with what the files say now: tokens and authorities change.
pub(super) async fn connect(settings: &Settings) -> Result<Client, String> {
    let mut config = match &settings.kubeconfig {
        Some(path) => {
            let at = |error| {
                format!(
                    "--kubeconfig {}: {}",
                    path.display(),
                    describe_chain(&error)
                )
            };
            let kubeconfig::Read { config, warnings } = kubeconfig::read(path).await.map_err(at)?;
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            config
        }
        None => Config::incluster().map_err(|error| {
            format!(
                "no ServiceAccount of a Pod ({}); outside a cluster name a file with --kubeconfig",
                describe_chain(&error)
            )
        })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // The backoff are ours: nothing waits out of sight.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| describe_error(&error))
}

/// What the API server, or the way to it, says.
pub(crate) fn describe_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({})", status.message, status.code)
        }
        error => describe_chain(error),
    }
}

/// An error with its causes, each once.
fn describe_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
