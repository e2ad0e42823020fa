//! Revokes a host's access, and removes the host's objects from the cluster.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use sesame_published::GatewayAgent;
use sesame_published::host_access::{
    fleet_binding, gateways_role, host_account, invitation_account,
};

use super::cluster::Cluster;
use super::{HostsError, is_missing};

/// Also deletes the host's reports. The host keeps serving its last configuration.
pub(crate) async fn revoke(cluster: &Cluster, host: &str) -> Result<(), HostsError> {
    if !remove(cluster, host).await? {
        return Err(HostsError::Unknown(host.to_owned()));
    }
    let api: Api<GatewayAgent> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let reports = api.list(&ListParams::default()).await;
    let reports = reports.map_err(|error| HostsError::from_kube("list GatewayAgents", &error))?;
    for report in reports
        .items
        .iter()
        .filter(|report| report.spec.host == host)
    {
        let name = report.metadata.name.as_deref().unwrap_or_default();
        delete::<GatewayAgent>(cluster, name).await?;
    }
    Ok(())
}

/// Deletes permissions first, because a token can outlive its account by a few seconds.
pub(super) async fn remove(cluster: &Cluster, host: &str) -> Result<bool, HostsError> {
    let mut found = remove_invitation(cluster, host).await?;
    found |= remove_account(cluster, &host_account(host)).await?;
    found |= delete::<RoleBinding>(cluster, &fleet_binding(host)).await?;
    found |= delete::<RoleBinding>(cluster, &gateways_role(host)).await?;
    found |= delete::<Role>(cluster, &gateways_role(host)).await?;
    found |= delete::<Secret>(cluster, &host_account(host)).await?;
    Ok(found)
}

pub(super) async fn remove_invitation(cluster: &Cluster, host: &str) -> Result<bool, HostsError> {
    remove_account(cluster, &invitation_account(host)).await
}

/// Returns true if anything was deleted.
async fn remove_account(cluster: &Cluster, account: &str) -> Result<bool, HostsError> {
    let mut found = delete::<RoleBinding>(cluster, account).await?;
    found |= delete::<ServiceAccount>(cluster, account).await?;
    found |= delete::<Role>(cluster, account).await?;
    Ok(found)
}

/// Returns true if anything was deleted.
pub(super) async fn delete<K>(cluster: &Cluster, name: &str) -> Result<bool, HostsError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(HostsError::from_kube(
            &format!("delete {} {name}", K::kind(&())),
            &error,
        )),
    }
}
