//! Invites, lists and revokes hosts outside the cluster, with the caller's permissions. A host's
//! tokens become invalid when its ServiceAccount or Secret is deleted.

mod accounts;
mod cluster;
mod expired;
mod inventory;
mod invite;
mod policy;
mod revoke;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::expired::remove_expired;
pub(crate) use self::inventory::{HostAccess, HostRow, list};
pub(crate) use self::invite::{Invitation, Invited, invite};
pub(crate) use self::revoke::revoke;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    #[error("{what}: {why}")]
    Api {
        /// The attempted action, including the object.
        what: String,
        /// Error message from the API server.
        why: String,
    },
    #[error(
        "host {0} has already joined; `--replace` revokes its access and invites it again, and \
        `sesame-controller hosts revoke {0}` revokes it permanently"
    )]
    Joined(String),
    /// Without the policy, several hosts could use one join token.
    #[error(
        "the admission policy {0:?} is not installed, so two hosts could join with one token; \
        apply controller/deploy of this version"
    )]
    NoPolicy(&'static str),
    #[error(
        "the API server does not enforce the admission policy {0:?}, so two hosts could join \
        with one token; apply controller/deploy of this version"
    )]
    PolicyNotFollowed(&'static str),
    #[error(
        "host {0} has neither joined nor been invited; `sesame-controller hosts list` shows all \
        hosts"
    )]
    Unknown(String),
    /// The host could not verify the API server.
    #[error(
        "the kubeconfig disables verification of the API server's certificate, so hosts could not \
        verify it either; set a certificate authority"
    )]
    Insecure,
    /// The host would send its credentials to an unauthenticated server.
    #[error("{0}: expected an https:// URL; set one with --server")]
    Server(String),
}

impl HostsError {
    fn from_kube(what: &str, error: &kube::Error) -> Self {
        let why = match error {
            kube::Error::Api(status) if status.code == 403 => format!(
                "{} (docs/joining.md lists the required permissions)",
                status.message
            ),
            kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
            error => format!("{:#}", anyhow::Error::msg(error.to_string())),
        };
        Self::Api {
            what: what.to_owned(),
            why,
        }
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
