//! Joins a cluster as a host from outside it, and leaves it again.
//!
//! A join token lets its bearer claim the host's Secret once, and get the host's first credential. That is stored for the
//! agent, which renews it for as long as it runs (`run::cluster`). No credential is ever printed or logged.

pub(crate) mod credentials;
pub(crate) mod exchange;
pub(crate) mod leave;
pub(crate) mod owner;
pub(crate) mod service;
pub(crate) mod settings_file;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Reason why a host could not join or leave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// The API server does not know the token any more.
    #[error(
        "the API server does not know this join token: it has expired, was withdrawn, or a host has joined with it; ask for another one (`sesame-controller hosts token`)"
    )]
    Unknown,
    /// Somebody else was first.
    #[error(
        "somebody has used this join token already. If that was not this host, end their access with `sesame-controller hosts revoke {0}`; then ask for another token"
    )]
    Used(String),
    /// The API server refuses.
    #[error("{what}: {why}")]
    Refused {
        /// The request.
        what: &'static str,
        /// Words of the API server, or the reason for which it cannot be asked.
        why: String,
    },
    /// The kubeconfig made of the token cannot be used.
    #[error("the cluster of the join token cannot be used: {0}")]
    Kubeconfig(String),
}

/// Returns a client made of a kubeconfig that holds its credential itself.
async fn client(kubeconfig: serde_json::Value) -> Result<Client, JoinError> {
    let unusable = |error: String| JoinError::Kubeconfig(error);
    let file: Kubeconfig =
        serde_json::from_value(kubeconfig).map_err(|error| unusable(error.to_string()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(error.to_string()))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(ANSWER_TIMEOUT);
    config.write_timeout = Some(ANSWER_TIMEOUT);
    // Each request has its own way to be tried again.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| unusable(error.to_string()))
}
