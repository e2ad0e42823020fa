//! HTTPS to a CA, with limits on time and size. Never follows a redirect.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use sesame_acme::MAX_CHAIN_BYTES;
use sesame_proto::causes::with_causes;
use sesame_proto::pem;

use crate::order::OrderError;

/// Timeout for a request, including the time to connect.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest delay that the CA may ask for. `instant-acme` panics on overflow.
const MAX_RETRY_AFTER: u64 = 24 * 60 * 60;

/// Delay that the CA asked for in its last rejection. `instant-acme` keeps it only for polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    pub(crate) fn take(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn record(&self, status: StatusCode, headers: &HeaderMap) {
        let is_refusal = status.is_client_error() || status.is_server_error();
        let delay = headers.get(RETRY_AFTER).filter(|_| is_refusal);
        let delay = delay.and_then(|it| parse(it.to_str().ok()?, Timestamp::now()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }
}

/// Limits the delay, and removes unreadable ones.
fn limit_retry_after(headers: &mut HeaderMap, now: Timestamp) {
    let Some(value) = headers.remove(RETRY_AFTER) else {
        return;
    };
    if let Some(delay) = value.to_str().ok().and_then(|text| parse(text, now)) {
        let seconds = delay.as_secs().min(MAX_RETRY_AFTER);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// Checks values that `instant-acme` uses unchecked.
fn check_directory(status: StatusCode, body: &[u8]) -> Result<(), String> {
    let expected = "expected an ACME directory; check spec.acme.directory";
    if !status.is_success() {
        return Err(format!("the directory's status is {status}; {expected}"));
    }
    let fields: serde_json::Value = serde_json::from_slice(body)
        .map_err(|error| format!("the directory is not JSON: {error}; {expected}"))?;
    let new_nonce = fields.get("newNonce").and_then(serde_json::Value::as_str);
    let new_nonce =
        new_nonce.ok_or_else(|| format!("the directory has no newNonce; {expected}"))?;
    let parsed = new_nonce.parse::<Uri>();
    let parsed = parsed.map_err(|error| format!("the directory's newNonce: {error}; {expected}"));
    parsed.map(drop)
}

/// Parses seconds, or an HTTP date.
fn parse(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new()
        .parse_timestamp(text.trim())
        .ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

pub(crate) struct CaClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    retry_after: RetryAfter,
}

impl CaClient {
    pub(crate) fn new(
        ca_bundle: Option<&str>,
        retry_after: RetryAfter,
    ) -> Result<Self, OrderError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(ca_bundle)?)
            .https_only()
            .enable_http1()
            .build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            retry_after,
        })
    }
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let (client, retry_after) = (self.client.clone(), self.retry_after.clone());
        Box::pin(async move {
            let answered = tokio::time::timeout(TIMEOUT, answer(&client, request)).await;
            let response = answered.map_err(|_| other(format!("no response in {TIMEOUT:?}")))?;
            let mut response = response?;
            limit_retry_after(response.headers_mut(), Timestamp::now());
            retry_after.record(response.status(), response.headers());
            Ok(BytesResponse::from(response))
        })
    }
}

async fn answer(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Full<Bytes>>, instant_acme::Error> {
    let (parts, body) = request.into_parts();
    // All other requests are HEAD or POST.
    let is_directory = parts.method == Method::GET;
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    let response = client
        .request(Request::from_parts(parts, Full::new(body)))
        .await;
    let (parts, body) = response
        .map_err(|error| other(with_causes(&error)))?
        .into_parts();
    let body = Limited::new(body, MAX_CHAIN_BYTES).collect().await;
    let body = body
        .map_err(|error| other(with_causes(&*error)))?
        .to_bytes();
    if is_directory {
        check_directory(parts.status, &body).map_err(other)?;
    }
    Ok(Response::from_parts(parts, Full::new(body)))
}

fn other(message: String) -> instant_acme::Error {
    instant_acme::Error::Other(message.into())
}

fn tls(ca_bundle: Option<&str>) -> Result<ClientConfig, OrderError> {
    let trust = |error: &dyn std::fmt::Display| {
        OrderError::new(format!(
            "spec.acme.caBundle: {error}; correct the certificates"
        ))
    };
    let mut roots = RootCertStore::empty();
    if let Some(text) = ca_bundle {
        for certificate in pem::read::<CertificateDer<'_>>(text.as_bytes()) {
            let certificate = certificate.map_err(|error| trust(&error))?;
            roots.add(certificate).map_err(|error| trust(&error))?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    if roots.is_empty() {
        return Err(OrderError::new(
            "no CA certificates to verify the CA's server with; install the system's, or set \
             spec.acme.caBundle",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OrderError::new(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_date() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        assert_eq!(parse("120", now), Some(Duration::from_secs(120)));
        let date = "Tue, 01 Dec 2026 12:01:00 GMT";
        assert_eq!(parse(date, now), Some(Duration::from_secs(60)));
        let past = "Tue, 01 Dec 2026 11:00:00 GMT";
        assert_eq!(parse(past, now), Some(Duration::ZERO));
        assert_eq!(parse("soon", now), None);
    }

    #[test]
    fn long_and_unreadable_delays_are_limited() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let limited = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            headers.append(
                RETRY_AFTER,
                HeaderValue::from_static("18446744073709551615"),
            );
            limit_retry_after(&mut headers, now);
            let values = headers.get_all(RETRY_AFTER).into_iter();
            let values = values.map(|value| value.to_str().unwrap().to_owned());
            values.collect::<Vec<_>>()
        };
        assert_eq!(limited("120"), ["120"]);
        assert_eq!(limited("18446744073709551615"), ["86400"]);
        assert_eq!(limited("Tue, 01 Dec 2099 12:00:00 GMT"), ["86400"]);
        for unreadable in ["99999999999999999999", "soon", ""] {
            assert!(limited(unreadable).is_empty(), "{unreadable}");
        }
    }

    #[test]
    fn directory_needs_usable_new_nonce() {
        let check = |body: &str| check_directory(StatusCode::OK, body.as_bytes());
        let good = r#"{"newNonce": "https://ca.test/nonce"}"#;
        assert_eq!(check(good), Ok(()));
        for (body, words) in [
            ("<html>", "is not JSON"),
            ("[]", "has no newNonce"),
            (r#"{"newNonce": 1}"#, "has no newNonce"),
            (r#"{"newNonce": ""}"#, "newNonce: empty string"),
            (r#"{"newNonce": "https://<ca>/"}"#, "newNonce: invalid uri"),
        ] {
            let why = check(body).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let why = check_directory(StatusCode::NOT_FOUND, good.as_bytes()).unwrap_err();
        assert!(why.contains("404 Not Found"), "{why}");
    }
}
