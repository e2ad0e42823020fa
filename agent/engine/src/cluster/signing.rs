//! Gets a certificate from a signer in the cluster, through a CertificateSigningRequest that must
//! be approved.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use sesame_proto::digest::sha256;
use tokio::time::{Instant, timeout};

use super::Clients;
use sesame_sources::cluster::describe_error;
use sesame_sources::local::RequestedUsage;

/// Time limit for each request to the API server.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Polling interval after `FAST_POLL_PERIOD`.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Duration of fast polling, counted from the first poll.
const FAST_POLL_PERIOD: Duration = Duration::from_secs(60);

pub(crate) struct SignerRequest<'a> {
    pub(crate) signer: &'a str,
    pub(crate) seconds: Option<i32>,
    pub(crate) usage: RequestedUsage,
    /// Receives progress messages.
    pub(crate) report: &'a (dyn Fn(String) + Send + Sync),
}

pub(crate) async fn sign(
    clients: &Clients,
    signing: &SignerRequest<'_>,
    pem: &str,
) -> Result<String, String> {
    let client = clients.borrow().clone();
    let client = client.ok_or_else(|| "the cluster has not been reached yet".to_owned())?;
    let api: Api<CertificateSigningRequest> = Api::all(client);
    // Name the object after the request's digest, so that a restarted agent finds it.
    let mut digest = sha256(pem.as_bytes());
    digest.truncate(32);
    let name = format!("sesame-{digest}");
    let begun = Instant::now();
    loop {
        let found = match timeout(TIMEOUT, find_or_create(&api, &name, signing, pem)).await {
            Ok(found) => found.map_err(|error| {
                format!(
                    "CertificateSigningRequest {name}: {}",
                    describe_error(&error)
                )
            })?,
            Err(_) => {
                return Err(format!(
                    "no response from the API server within {TIMEOUT:?}"
                ));
            }
        };
        let status = found.status.unwrap_or_default();
        if let Some(ByteString(certificate)) = status.certificate.filter(|it| !it.0.is_empty()) {
            return String::from_utf8(certificate)
                .map_err(|_| format!("CertificateSigningRequest {name} does not contain PEM"));
        }
        let conditions = status.conditions.unwrap_or_default();
        let is = |type_: &str| conditions.iter().find(|one| one.type_ == type_);
        if let Some(bad) = is("Denied").or_else(|| is("Failed")) {
            let why = bad
                .message
                .as_deref()
                .or(bad.reason.as_deref())
                .unwrap_or_default();
            return Err(format!(
                "CertificateSigningRequest {name} is {}: {why}; delete it to have it recreated",
                bad.type_.to_lowercase()
            ));
        }
        (signing.report)(if is("Approved").is_some() {
            format!(
                "CertificateSigningRequest {name} is approved, but {} has not signed it yet",
                signing.signer
            )
        } else {
            format!(
                "CertificateSigningRequest {name} is waiting for approval (`kubectl certificate approve {name}`)"
            )
        });
        let pause = if begun.elapsed() > FAST_POLL_PERIOD {
            SLOW_POLL_INTERVAL
        } else {
            POLL_INTERVAL
        };
        tokio::time::sleep(pause).await;
    }
}

async fn find_or_create(
    api: &Api<CertificateSigningRequest>,
    name: &str,
    signing: &SignerRequest<'_>,
    pem: &str,
) -> kube::Result<CertificateSigningRequest> {
    if let Some(found) = api.get_opt(name).await? {
        return Ok(found);
    }
    let usage = match signing.usage {
        RequestedUsage::Client => "client auth",
        RequestedUsage::Server => "server auth",
    };
    let labels = [("app.kubernetes.io/managed-by", "sesame-agent")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let request = CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.as_bytes().to_vec()),
            signer_name: signing.signer.to_owned(),
            expiration_seconds: signing.seconds,
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    api.create(&PostParams::default(), &request).await
}
