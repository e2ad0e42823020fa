//! The admission policy that lets one join token be used by one host only. No token may be given out before the API server
//! follows it.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use serde_json::json;
use sesame_published::host_access::host_account;
use tokio::time::{Instant, sleep};

use super::cluster::Cluster;
use super::{HostsError, is_missing};

/// Name of the policy and of its binding.
const POLICY: &str = "sesame-hosts";
/// Time in which an API server follows a policy that was applied a moment ago, and knows the rights of an invitation.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(250);

/// Fails if the policy is certainly not there. A caller who may not look learns later whether it is followed.
pub(super) async fn require(cluster: &Cluster) -> Result<(), HostsError> {
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    match api.get(POLICY).await {
        Err(error) if is_missing(&error) => Err(HostsError::NoPolicy(POLICY)),
        _ => Ok(()),
    }
}

/// Waits until the API server refuses the invitation a change of the host's Secret that claims nothing. `bearer` is the
/// invitation's token. Nothing is changed, even if the policy lets it through.
pub(super) async fn wait_until_followed(
    cluster: &Cluster,
    host: &str,
    bearer: &str,
) -> Result<(), HostsError> {
    let api: Api<Secret> = Api::namespaced(cluster.bearing(bearer)?, &cluster.namespace);
    let change = Patch::Merge(json!({"metadata": {"annotations": {"projectsesame.io/try": ""}}}));
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let error = match api.patch(&host_account(host), &params, &change).await {
            Err(kube::Error::Api(status)) if is_refusal(&status) => return Ok(()),
            Ok(_) => HostsError::PolicyNotFollowed(POLICY),
            Err(error) => HostsError::of("try the join token", &error),
        };
        if Instant::now() >= until {
            return Err(error);
        }
        sleep(AGAIN).await;
    }
}

/// Returns true if our policy refused the change. Another check of the API server may give the same code.
fn is_refusal(status: &Status) -> bool {
    status.code == 422 && status.message.contains(&format!("'{POLICY}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_policy_counts_as_a_refusal() {
        let status = |code, message: &str| Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let by = |policy: &str| {
            format!(
                "secrets \"sesame-host.edge-1\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied \
                 request: it claims nothing"
            )
        };
        assert!(is_refusal(&status(422, &by("sesame-hosts"))));
        assert!(!is_refusal(&status(422, &by("another"))));
        assert!(!is_refusal(&status(403, &by("sesame-hosts"))));
        assert!(!is_refusal(&status(422, "metadata.annotations: Too long")));
    }
}
