//! Joins an external host to a cluster, and removes it again.
//!
//! A join token can be claimed only once, for the host's first credential. A running agent renews
//! that credential (see `run::cluster`). Never print or log a credential.

pub mod credentials;
pub mod exchange;
pub mod leave;
pub mod owner;
pub mod service;
pub mod settings_file;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a host cannot join or leave a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The join token may have expired or been revoked.
    #[error(
        "the API server rejected this join token: it has expired, was revoked, or was already used; request a new one (`sesame-controller hosts token`)"
    )]
    Unknown,
    #[error(
        "this join token was already used. Unless this host used it, revoke the access with `sesame-controller hosts revoke {0}`; then request a new token"
    )]
    /// Join token that was already claimed. Contains the host's name.
    Used(String),
    /// Failed request to the API server.
    #[error("{what}: {why}")]
    Refused {
        /// Attempted action, such as `claim the join token`.
        what: &'static str,
        /// Message from the API server, or why it is unreachable.
        why: String,
    },
    /// Unusable connection settings in the join token, with the reason.
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
