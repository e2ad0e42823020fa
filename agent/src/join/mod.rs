//! Joins an external host to a cluster, and removes it again.
//!
//! A join token can be claimed only once, for the host's first credential. A running agent renews
//! that credential (see `run::cluster`). Never print or log a credential.

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

#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// The join token may have expired or been revoked.
    #[error(
        "the API server rejected this join token: it has expired, was revoked, or was already used; request a new one (`sesame-controller hosts token`)"
    )]
    Unknown,
    #[error(
        "this join token was already used. Unless this host used it, revoke the access with `sesame-controller hosts revoke {0}`; then request a new token"
    )]
    Used(String),
    #[error("{what}: {why}")]
    Refused {
        what: &'static str,
        /// Message from the API server, or why it is unreachable.
        why: String,
    },
    #[error("cannot use the join token's cluster: {0}")]
    Kubeconfig(String),
}

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
    // Callers decide for each request whether to retry.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| unusable(error.to_string()))
}
