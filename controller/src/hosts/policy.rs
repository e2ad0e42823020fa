//! Checks that the API server enforces the admission policy that limits a join token to one host.
//! Never issue a token before this check succeeds.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use kube::core::Status;
use sesame_published::host_access::host_secret;
use tokio::time::{Instant, sleep};

use super::cluster::Cluster;
use super::{HostsError, is_missing};

const POLICY: &str = "sesame-hosts";
/// Maximum time until the API server enforces a new policy and the invitation's permissions.
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Succeeds if the caller is not permitted to read the policy; `wait_until_followed` tests
/// enforcement later.
pub(super) async fn require(cluster: &Cluster) -> Result<(), HostsError> {
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    match api.get(POLICY).await {
        Err(error) if is_missing(&error) => Err(HostsError::NoPolicy(POLICY)),
        _ => Ok(()),
    }
}

/// All requests are dry runs, so nothing is created if the policy is missing.
pub(super) async fn wait_until_followed(
    cluster: &Cluster,
    host: &str,
    account_uid: &str,
    bearer: &str,
) -> Result<(), HostsError> {
    let api: Api<Secret> = Api::namespaced(cluster.bearing(bearer)?, &cluster.namespace);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let until = Instant::now() + TIMEOUT;
    for (secret, words) in forbidden(host, account_uid) {
        loop {
            let error = match api.create(&params, &secret).await {
                Err(kube::Error::Api(status)) if is_refusal(&status, words) => break,
                Ok(_) => HostsError::PolicyNotFollowed(POLICY),
                Err(error) => HostsError::from_kube("try the join token", &error),
            };
            if Instant::now() >= until {
                return Err(error);
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
    Ok(())
}

/// Secrets that the policy must reject, each with part of the expected error message.
fn forbidden(host: &str, account_uid: &str) -> [(Secret, &'static str); 2] {
    let mut renamed = host_secret(host, account_uid, "");
    renamed.metadata.name = Some("sesame-probe".to_owned());
    let mut with_data = host_secret(host, account_uid, "");
    with_data.string_data = Some([("probe".to_owned(), "probe".to_owned())].into());
    [
        (renamed, "of its host and write no other"),
        (with_data, "must be empty"),
    ]
}

/// Compares the message, because other checks return the same status code.
fn is_refusal(status: &Status, words: &str) -> bool {
    status.code == 422
        && status.message.contains(&format!("'{POLICY}'"))
        && status.message.contains(words)
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
        let denial = |policy: &str| {
            format!(
                "secrets \"sesame-host.edge-1\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied \
                 request: it must be empty"
            )
        };
        assert!(is_refusal(
            &status(422, &denial("sesame-hosts")),
            "must be empty"
        ));
        assert!(!is_refusal(
            &status(422, &denial("sesame-hosts")),
            "no other"
        ));
        assert!(!is_refusal(
            &status(422, &denial("another")),
            "must be empty"
        ));
        assert!(!is_refusal(
            &status(403, &denial("sesame-hosts")),
            "must be empty"
        ));
        assert!(!is_refusal(
            &status(422, "data: must be empty"),
            "must be empty"
        ));
    }
}
