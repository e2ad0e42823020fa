//! Invites a host: creates its account, permissions and join token.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::Metadata;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sesame_published::host_access::{
    HostScope, fleet_role, gateways_role, host_account, invitation_account,
};
use sesame_published::join_token::JoinToken;

use super::cluster::Cluster;
use super::revoke::{delete, remove};
use super::{HostsError, accounts, is_missing, policy};

/// Maximum number of attempts. A retry recreates the Role, in case the controller has written its
/// rules before the Role is bound.
const MAX_ATTEMPTS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    pub(crate) host: String,
    pub(crate) scope: HostScope,
    pub(crate) ttl: SignedDuration,
    /// Lifetime of the credentials that the host obtains after joining.
    pub(crate) lifetime: SignedDuration,
    /// API server URL, or `None` to use the caller's.
    pub(crate) server: Option<String>,
    /// Revokes an existing host with the same name.
    pub(crate) replace: bool,
}

pub(crate) struct Invited {
    pub(crate) token: JoinToken,
    pub(crate) expires: Timestamp,
}

/// Replaces the objects of an earlier invitation.
pub(crate) async fn invite(cluster: &Cluster, wanted: &Invitation) -> Result<Invited, HostsError> {
    let Invitation {
        host,
        scope,
        ttl,
        lifetime,
        server,
        replace,
    } = wanted;
    let server = cluster.server(server.as_deref())?;
    policy::require(cluster).await?;
    if is_there::<ServiceAccount>(cluster, &host_account(host)).await? {
        let invited = is_there::<ServiceAccount>(cluster, &invitation_account(host)).await?;
        if !invited && !replace {
            return Err(HostsError::Joined(host.clone()));
        }
        remove(cluster, host).await?;
    }
    let owner = create(cluster, &accounts::host(host, scope)).await?;
    let (role, binding) = accounts::host_parts(host, &owner);
    create::<Role>(cluster, &role).await?;
    create::<RoleBinding>(cluster, &binding).await?;
    give_keys(cluster, host, scope, &owner).await?;
    let soon = Timestamp::now()
        .checked_add(*ttl)
        .unwrap_or(Timestamp::MAX)
        .to_string();
    let invitation = create(cluster, &accounts::invitation(host, &soon, &owner)).await?;
    let (role, binding) = accounts::invitation_parts(host, &invitation);
    create::<Role>(cluster, &role).await?;
    create::<RoleBinding>(cluster, &binding).await?;
    let (bearer, expires) = bearer(cluster, &invitation_account(host), *ttl).await?;
    let account_uid = owner.metadata.uid.unwrap_or_default();
    let followed = policy::wait_until_followed(cluster, host, &account_uid, &bearer);
    if let Err(error) = followed.await {
        // Leftover objects are harmless: invitations expire, and the next invitation replaces the
        // objects.
        let _ = remove(cluster, host).await;
        return Err(error);
    }
    Ok(Invited {
        token: JoinToken {
            server,
            authority: cluster.authority(),
            server_name: cluster.server_name(),
            namespace: cluster.namespace.clone(),
            host: host.clone(),
            account_uid,
            scope: scope.clone(),
            lifetime_seconds: lifetime.as_secs(),
            bearer,
        },
        expires,
    })
}

/// The controller writes the Role's rules.
async fn give_keys(
    cluster: &Cluster,
    host: &str,
    scope: &HostScope,
    owner: &ServiceAccount,
) -> Result<(), HostsError> {
    let gateways = match scope {
        HostScope::Gateways(gateways) => gateways,
        HostScope::Fleet(fleet) => {
            if !is_there::<Role>(cluster, &fleet_role(fleet)).await? {
                create(cluster, &accounts::fleet(fleet)).await?;
            }
            create(cluster, &accounts::fleet_part(host, fleet, owner)).await?;
            return Ok(());
        }
    };
    let (role, binding) = accounts::gateways_parts(host, gateways, owner);
    let mut attempts = 0..MAX_ATTEMPTS;
    loop {
        create(cluster, &role).await?;
        match create(cluster, &binding).await {
            // The controller may already have written the rules. RBAC forbids binding permissions
            // that the caller lacks.
            Err(_) if attempts.next().is_some() => {
                delete::<Role>(cluster, &gateways_role(host)).await?;
            }
            created => return created.map(|_| ()),
        }
    }
}

async fn is_there<K>(cluster: &Cluster, name: &str) -> Result<bool, HostsError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    match api.get_metadata(name).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(HostsError::from_kube(
            &format!("read {} {name}", K::kind(&())),
            &error,
        )),
    }
}

async fn create<K>(cluster: &Cluster, object: &K) -> Result<K, HostsError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Metadata<Ty = ObjectMeta>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let name = Metadata::metadata(object).name.clone().unwrap_or_default();
    let created = api.create(&PostParams::default(), object).await;
    created
        .map_err(|error| HostsError::from_kube(&format!("create {} {name}", K::kind(&())), &error))
}

async fn bearer(
    cluster: &Cluster,
    account: &str,
    ttl: SignedDuration,
) -> Result<(String, Timestamp), HostsError> {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(ttl.as_secs()),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let what = format!("request a token of ServiceAccount {account}");
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(|error| HostsError::from_kube(&what, &error))?;
    let status = answer.status.ok_or_else(|| HostsError::Api {
        what,
        why: "the response has no token".to_owned(),
    })?;
    Ok((status.token, status.expiration_timestamp.0))
}
