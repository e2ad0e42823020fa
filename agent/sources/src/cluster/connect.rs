//! Connects to the API server, and selects the objects that are meant for this host.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use kube::{Client, Config};
use sesame_kinds::api::NamespacedName;
use sesame_published::kubeconfig;
use sesame_published::names::{FLEET_LABEL, GATEWAY_LABEL, PART_LABEL, Part, gateway_id};

use super::backoff::ServerFault;
use super::stored_token::StoredToken;
use crate::update::Trusted;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where snapshots are published, and which ones this host serves.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// `None` selects the Pod's ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the published objects.
    pub namespace: String,
    /// Gateways to serve. Empty means all of the fleet's Gateways.
    pub gateways: Vec<NamespacedName>,
    /// Fleet of this host.
    pub fleet: String,
    /// Name of this host.
    pub host: String,
    /// Zone of this host. May be empty.
    pub zone: String,
    /// Trusted keys, if signatures are required.
    pub trusted: Trusted,
    /// Token stored by `join`, or `None` if the host's sealing keys were not read.
    pub stored: Option<StoredToken>,
}

impl ClusterSettings {
    /// Returns settings for all Gateways of a fleet, with credentials from a kubeconfig.
    pub fn of_fleet(kubeconfig: PathBuf, namespace: &str, fleet: &str, host: &str) -> Self {
        Self {
            kubeconfig: Some(kubeconfig),
            namespace: namespace.to_owned(),
            gateways: Vec::new(),
            fleet: fleet.to_owned(),
            host: host.to_owned(),
            zone: String::new(),
            trusted: None,
            stored: None,
        }
    }

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

    pub(super) fn accepts(&self, gateway: &NamespacedName, fleet: Option<&str>) -> bool {
        if self.gateways.is_empty() {
            fleet == Some(self.fleet.as_str())
        } else {
            self.gateways.contains(gateway)
        }
    }
}

/// Rereads the credential files on each call, because tokens and CA certificates change.
pub async fn connect(settings: &ClusterSettings) -> Result<Client, String> {
    let mut config = match &settings.kubeconfig {
        Some(path) => {
            let at = |error| {
                format!(
                    "--kubeconfig {}: {}",
                    path.display(),
                    describe_chain(&error)
                )
            };
            let kubeconfig::KubeconfigContent {
                mut config,
                warnings,
            } = kubeconfig::read(path).await.map_err(at)?;
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            if let Some(stored) = &settings.stored {
                stored.lead(&mut config)?;
            }
            config
        }
        None => Config::incluster().map_err(|error| {
            format!(
                "no Pod ServiceAccount found ({}); outside a cluster, set --kubeconfig",
                describe_chain(&error)
            )
        })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Disable kube's retries, because the agent has its own backoff.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| describe_error(&error))
}

/// Formats the error for users: the API server's message and status, or all causes.
pub fn describe_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({})", status.message, status.code)
        }
        kube::Error::Service(error) => describe_chain(&**error),
        error => describe_chain(error),
    }
}

/// A 5xx status counts as unreachable, because a proxy may have sent it.
pub fn fault(error: &kube::Error) -> ServerFault {
    match error {
        kube::Error::Api(status) if status.code == 429 => ServerFault::Busy,
        kube::Error::Api(status) if status.code < 500 => ServerFault::Refused,
        _ => ServerFault::Unreachable,
    }
}

/// Runs the request, or returns `kube::Error::Service` after `limit`.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let answer = tokio::time::timeout(limit, request).await;
    answer.unwrap_or_else(|_| {
        let why = format!("the API server did not respond within {limit:?}");
        Err(kube::Error::Service(why.into()))
    })
}

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
