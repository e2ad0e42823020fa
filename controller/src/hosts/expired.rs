//! Removes long-expired invitations. The running controller is not permitted to delete accounts, so
//! `sesame-controller hosts token` removes them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::ObjectMeta;
use sesame_published::host_access::{
    ACCESS_INVITATION, ACCESS_LABEL, EXPIRES_ANNOTATION, HOST_ANNOTATION, host_account, host_secret,
};

use super::HostsError;
use super::cluster::Cluster;
use super::revoke::{remove, remove_invitation};

/// Delay before an expired invitation is removed, which tolerates a wrong clock on the caller's
/// machine.
const LISTED: SignedDuration = SignedDuration::from_hours(24);

/// Also removes the account of a host that never joined. Returns the affected hosts.
pub(crate) async fn remove_expired(cluster: &Cluster) -> Result<Vec<String>, HostsError> {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params = ListParams::default().labels(&format!("{ACCESS_LABEL}={ACCESS_INVITATION}"));
    let found = api.list_metadata(&params).await;
    let found = found.map_err(|error| HostsError::from_kube("list ServiceAccounts", &error))?;
    let invitations: Vec<ObjectMeta> = found.items.into_iter().map(|one| one.metadata).collect();
    let hosts = expired(&invitations, Timestamp::now());
    for host in &hosts {
        // Keep the account of a host that has joined but could not delete its invitation.
        if has_joined(cluster, host).await? {
            remove_invitation(cluster, host).await?;
        } else {
            remove(cluster, host).await?;
        }
    }
    Ok(hosts)
}

fn expired(invitations: &[ObjectMeta], now: Timestamp) -> Vec<String> {
    let hosts = invitations.iter().filter_map(|invitation| {
        let annotations = invitation.annotations.as_ref()?;
        let expires: Timestamp = annotations.get(EXPIRES_ANNOTATION)?.parse().ok()?;
        let host = annotations.get(HOST_ANNOTATION)?;
        (now.duration_since(expires) > LISTED).then(|| host.clone())
    });
    hosts.collect()
}

/// Tests with a dry-run creation, so the caller needs no permission to read Secrets.
async fn has_joined(cluster: &Cluster, host: &str) -> Result<bool, HostsError> {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &host_secret(host, "unknown", "")).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
        Err(error) => {
            let name = host_account(host);
            Err(HostsError::from_kube(
                &format!("try to create Secret {name}"),
                &error,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitation_is_removed_one_day_after_expiry() {
        let now: Timestamp = "2026-03-02T12:00:00Z".parse().expect("a time");
        let invitation = |host: &str, expires: &str| {
            let all = [(HOST_ANNOTATION, host), (EXPIRES_ANNOTATION, expires)];
            let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
            ObjectMeta {
                annotations: Some(all.into()),
                ..ObjectMeta::default()
            }
        };
        let all = [
            invitation("old", "2026-03-01T11:59:00Z"),
            invitation("late", "2026-03-01T12:01:00Z"),
            invitation("open", "2026-03-02T12:10:00Z"),
            invitation("odd", "tomorrow"),
            ObjectMeta::default(),
        ];
        assert_eq!(expired(&all, now), ["old"]);
    }
}
