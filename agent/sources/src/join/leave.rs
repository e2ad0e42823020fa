//! Leaves a cluster: deletes this host's reports, then its service account. Kubernetes
//! garbage-collects the objects that the account owns.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use sesame_published::GatewayAgent;
use sesame_published::host_access::host_account;
use sesame_published::kubeconfig;

use std::path::Path;

use super::credentials;
use super::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, JoinError};
use crate::cluster::describe_error;
use crate::cluster::stored_token::StoredToken;

/// Deletes this host's reports and service account.
/// Succeeds without deleting anything if this host's access was revoked.
pub async fn leave(state: &Path, sealed: &StoredToken) -> anyhow::Result<()> {
    let mut config = kubeconfig::read(&credentials::kubeconfig_path(state))
        .await?
        .config;
    sealed.lead(&mut config).map_err(anyhow::Error::msg)?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(ANSWER_TIMEOUT);
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let host = credentials::host(state).context("the stored kubeconfig does not name a host")?;
    let client = Client::try_from(config)?;
    let reports: Api<GatewayAgent> = Api::namespaced(client.clone(), &namespace);
    let found = match reports.list(&ListParams::default()).await {
        // An administrator has revoked this host's access, and must also remove its reports.
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return Ok(()),
        result => result.map_err(|error| refused("list this host's reports", &error))?,
    };
    for report in found.items.iter().filter(|report| report.spec.host == host) {
        let name = report.metadata.name.as_deref().unwrap_or_default();
        let deleted = reports.delete(name, &DeleteParams::default()).await;
        there_or_gone(deleted.map(|_| ()), "delete one of this host's reports")?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace);
    let deleted = accounts
        .delete(&host_account(&host), &DeleteParams::default())
        .await;
    there_or_gone(deleted.map(|_| ()), "delete this host's service account")?;
    Ok(())
}

fn there_or_gone(result: kube::Result<()>, what: &'static str) -> Result<(), JoinError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map_err(|error| refused(what, &error)),
    }
}

fn refused(what: &'static str, error: &kube::Error) -> JoinError {
    JoinError::Refused {
        what,
        why: describe_error(error),
    }
}
