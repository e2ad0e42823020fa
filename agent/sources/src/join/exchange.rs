//! Exchanges a join token for the host's first credential.
//!
//! The host claims the join token by creating the host's Secret, which succeeds only once. The API
//! server issues a token only to a client that knows the Secret's UID.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sesame_published::host_access::{host_account, host_secret, invitation_account};
use sesame_published::join_token::JoinToken;
use tokio::time::Instant;

use super::credentials::kubeconfig;
use super::{JoinError, client};
use crate::cluster::describe_error;

/// How long to retry while the API server is unavailable or new permissions have not taken effect.
const TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Claims the join token, and returns its client and the host's first credential.
/// Retries each request for up to 20 s while the API server is unavailable.
pub async fn exchange(token: &JoinToken) -> Result<(Client, String), JoinError> {
    let user = json!({"token": token.bearer});
    let client = client(kubeconfig(token, &user)).await?;
    let until = Instant::now() + TIMEOUT;
    let uid = loop {
        match claim(&client, token).await {
            Err(error) if again(&error) && Instant::now() < until => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(judge("claim the join token", &error, &token.host)),
            Ok(uid) => break uid,
        }
    };
    let until = Instant::now() + TIMEOUT;
    let account = host_account(&token.host);
    loop {
        let requested = request(
            &client,
            &token.namespace,
            &account,
            &uid,
            token.lifetime_seconds,
        );
        match requested.await {
            Err(error) if again(&error) && Instant::now() < until => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => {
                let what =
                    "get the host's credential (the join token is used up: request a new one)";
                return Err(judge(what, &error, &token.host));
            }
            Ok(credential) => return Ok((client, credential)),
        }
    }
}

/// Deletes the join token's service account. Does not retry, because the token cannot be claimed
/// again anyway.
pub async fn end_invitation(client: Client, token: &JoinToken) -> Result<(), JoinError> {
    let api: Api<ServiceAccount> = Api::namespaced(client, &token.namespace);
    let account = invitation_account(&token.host);
    match api.delete(&account, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(judge("end the invitation", &error, &token.host)),
    }
}

/// Requests a token for the host. The token is bound to the host's Secret, so it becomes invalid
/// when the Secret is deleted.
pub async fn request(
    client: &Client,
    namespace: &str,
    account: &str,
    secret_uid: &str,
    lifetime_seconds: i64,
) -> kube::Result<String> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(account.to_owned()),
                uid: Some(secret_uid.to_owned()),
            }),
            expiration_seconds: Some(lifetime_seconds),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let answer = api.create_token_request(account, &params, &request).await?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}

async fn claim(client: &Client, token: &JoinToken) -> kube::Result<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &token.namespace);
    let secret = host_secret(
        &token.host,
        &token.account_uid,
        &Timestamp::now().to_string(),
    );
    let secret = api.create(&PostParams::default(), &secret).await?;
    Ok(secret.metadata.uid.unwrap_or_default())
}

/// Returns true if the API server is unavailable, or permissions may not have taken effect yet.
fn again(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 403 || status.code >= 500 || status.code == 429,
        _ => true,
    }
}

fn judge(what: &'static str, error: &kube::Error, host: &str) -> JoinError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 404) => JoinError::Unknown,
        // The Secret already exists, so the join token has already been claimed.
        kube::Error::Api(status) if status.code == 409 => JoinError::Used(host.to_owned()),
        error => JoinError::Refused {
            what,
            why: describe_error(error),
        },
    }
}
