//! Fetches one document over HTTPS.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use sesame_proto::addresses::{self, RefusedAddress};
use sesame_proto::causes::with_causes;
use sesame_proto::discovery::{self, DiscoveryError};
use sesame_proto::jwks::{self, JwksError};
use sesame_proto::key_sets::{FetchedDocument, KeySetRequest, KeySetTrust};
use sesame_proto::pem;
use tower::service_fn;

/// Timeout for a fetch, including the time to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a key set could not be fetched. Never contains any part of the response's body.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Unusable CA certificates.
    #[error("CA certificates: {0}")]
    Trust(String),
    /// Invalid URI.
    #[error("expected an https URI: {0}")]
    Uri(String),
    /// The server has an address that is also refused for endpoints.
    #[error("{0} is in {1} ({2}), which is not permitted")]
    Address(IpAddr, &'static str, &'static str),
    /// The server is unreachable or untrusted.
    #[error("{0}")]
    Connection(String),
    /// The server did not respond in time.
    #[error("no response within {TIMEOUT:?}")]
    Timeout,
    /// Error status or redirect.
    #[error("the response has status {0}; expected 200 (redirects are not followed)")]
    Status(StatusCode),
    /// The response is too large.
    #[error("the response has more than {} bytes", jwks::MAX_BYTES)]
    TooLarge,
    /// The response is not a usable key set.
    #[error("the response {0}")]
    Keys(#[from] JwksError),
    /// The response is not the provider's configuration.
    #[error("the response {0}")]
    Provider(#[from] DiscoveryError),
}

/// Fetches a document and returns it in canonical form.
pub async fn fetch(request: &KeySetRequest) -> Result<String, FetchError> {
    let fetched = tokio::time::timeout(TIMEOUT, body(request)).await;
    let body = fetched.map_err(|_| FetchError::Timeout)??;
    let text = String::from_utf8_lossy(&body);
    Ok(match &request.document {
        FetchedDocument::KeySet => jwks::canonical(&text)?,
        FetchedDocument::Provider(issuer) => discovery::canonical(&text, issuer)?,
    })
}

async fn body(request: &KeySetRequest) -> Result<Bytes, FetchError> {
    let permits_local = request.permits_local;
    let uri: Uri = request.uri.parse().map_err(invalid)?;
    let host = uri.host().unwrap_or_default();
    // The connector does not resolve literal addresses.
    if let Ok(literal) = host.trim_matches(['[', ']']).parse() {
        permitted(literal, permits_local)?;
    }
    let resolver = service_fn(move |name: Name| resolve(name, permits_local));
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(&request.trust)?)
        .https_only()
        .enable_http1()
        .wrap_connector(connector);
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let get = Request::get(uri)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("sesame/", env!("CARGO_PKG_VERSION")))
        .body(Empty::new())
        .map_err(invalid)?;
    let response = client.request(get).await;
    let response = response.map_err(|error| FetchError::Connection(with_causes(&error)))?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let limited = Limited::new(response.into_body(), jwks::MAX_BYTES);
    match limited.collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
        Err(error) => Err(FetchError::Connection(with_causes(&*error))),
    }
}

fn invalid(error: impl Into<hyper::http::Error>) -> FetchError {
    FetchError::Uri(error.into().to_string())
}

/// Fails if none of the host's addresses is permitted.
async fn resolve(
    name: Name,
    permits_local: bool,
) -> Result<impl Iterator<Item = SocketAddr>, Box<dyn Error + Send + Sync>> {
    let mut refused = None;
    let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
    let mut addresses = Vec::new();
    for address in all {
        match permitted(address.ip(), permits_local) {
            Ok(()) => addresses.push(address),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if addresses.is_empty() => Err(error.into()),
        _ => Ok(addresses.into_iter()),
    }
}

/// Refuses the addresses that endpoints must not have, so that a tenant's URI cannot reach them.
fn permitted(ip: IpAddr, permits_local: bool) -> Result<(), FetchError> {
    match addresses::refused(ip) {
        Some(RefusedAddress { network, what, .. }) if !permits_local => {
            Err(FetchError::Address(ip, network, what))
        }
        _ => Ok(()),
    }
}

fn tls(trust: &KeySetTrust) -> Result<ClientConfig, FetchError> {
    let mut roots = RootCertStore::empty();
    match trust {
        KeySetTrust::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        KeySetTrust::Pem(text) => {
            for certificate in pem::read::<CertificateDer<'_>>(text.as_bytes()) {
                let certificate = certificate.map_err(|it| FetchError::Trust(it.to_string()))?;
                let added = roots.add(certificate);
                added.map_err(|it| FetchError::Trust(it.to_string()))?;
            }
        }
        KeySetTrust::Unavailable => {}
    }
    if roots.is_empty() {
        return Err(FetchError::Trust("there are none".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|it| FetchError::Trust(it.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
