//! Client for the collector that receives spans. The collector is untrusted: requests have
//! timeouts, and only a response's status is used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use sesame_files::open::{self, OpenError, Rule};
use sesame_proto::pem;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::headers::{self, FileStamp};

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Default path of the collector's URL.
const PATH: &str = "/v1/traces";

/// Error in the collector's settings.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// An option requires `--spans-endpoint`.
    #[error("{0} requires --spans-endpoint; set --spans-endpoint, or remove {0}")]
    NoEndpoint(&'static str),
    /// The URL is not a valid collector URL.
    #[error(
        "--spans-endpoint {url:?}: {reason}; expected a URL such as http://collector.example.com:4318"
    )]
    Endpoint {
        /// The URL.
        url: String,
        /// The reason.
        reason: &'static str,
    },
    /// A file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The content of a file is invalid.
    #[error("{path}: {reason}")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Description of the expected content.
        reason: String,
    },
}

#[derive(Debug)]
pub(crate) struct SendFault {
    pub(crate) reason: String,
    /// True if a retry would not help.
    pub(crate) lasting: bool,
}

/// Settings for the connection to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorSettings {
    endpoint: Uri,
    ca: Option<PathBuf>,
    headers: Option<PathBuf>,
}

impl CollectorSettings {
    /// Checks the settings without reading any file.
    pub fn new(
        url: &str,
        ca: Option<PathBuf>,
        headers: Option<PathBuf>,
    ) -> Result<Self, CollectorError> {
        let fault = |reason| CollectorError::Endpoint {
            // Omit the part before the `@`, which may contain a password.
            url: url.rsplit('@').next().unwrap_or_default().to_owned(),
            reason,
        };
        let endpoint: Uri = url.parse().map_err(|_| fault("it is not a URL"))?;
        let authority = endpoint.authority();
        let authority = authority.ok_or_else(|| fault("it has no host"))?.as_str();
        if authority.contains('@') {
            return Err(fault("it contains credentials; use --spans-headers-file"));
        }
        if endpoint.query().is_some() {
            return Err(fault("it has a query"));
        }
        match endpoint.scheme_str() {
            Some("http") if ca.is_some() => {
                return Err(fault("--spans-ca requires an https URL"));
            }
            Some("https") if ca.is_none() => {
                return Err(fault("https needs --spans-ca, a file of CA certificates"));
            }
            Some("http" | "https") => {}
            _ => return Err(fault("it begins neither with http:// nor with https://")),
        }
        Ok(Self {
            endpoint,
            ca,
            headers,
        })
    }

    /// Returns the collector's URL, or `None` if CA certificates or headers are configured.
    pub fn bare_endpoint(&self) -> Option<String> {
        let Self {
            endpoint,
            ca,
            headers,
        } = self;
        (ca.is_none() && headers.is_none()).then(|| endpoint.to_string())
    }

    fn path(&self) -> &str {
        match self.endpoint.path() {
            "" | "/" => PATH,
            path => path,
        }
    }
}

pub(crate) struct Collector {
    settings: CollectorSettings,
    tls: Option<TlsConnector>,
    headers: HeaderMap,
    stamp: Option<FileStamp>,
}

impl Collector {
    pub(crate) fn new(settings: CollectorSettings) -> Result<Self, CollectorError> {
        let tls = settings.ca.as_deref().map(connector).transpose()?;
        let path = settings.headers.as_deref();
        let stamp = path.and_then(headers::stamp);
        let headers = path.map(headers::read).transpose()?.unwrap_or_default();
        Ok(Self {
            settings,
            tls,
            headers,
            stamp,
        })
    }

    pub(crate) async fn send(&mut self, body: Bytes) -> Result<(), SendFault> {
        self.read_headers_again();
        let again = |reason| SendFault {
            reason,
            lasting: false,
        };
        let answer = tokio::time::timeout(TIMEOUT, self.post(body)).await;
        let answer = answer.map_err(|_| again(format!("no response within {TIMEOUT:?}")))?;
        let status = answer.map_err(again)?;
        let busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
        if status.is_success() {
            return Ok(());
        }
        Err(SendFault {
            reason: format!("it responds with {status}"),
            lasting: !busy && !status.is_server_error(),
        })
    }

    /// Reloads a changed file, but keeps the previous headers if the file is invalid.
    fn read_headers_again(&mut self) {
        let Some(path) = self.settings.headers.as_deref() else {
            return;
        };
        let now = headers::stamp(path);
        if now == self.stamp {
            return;
        }
        self.stamp = now;
        match headers::read(path) {
            Ok(headers) => self.headers = headers,
            Err(error) => {
                tracing::warn!(%error, "keeping the previous headers for the collector");
            }
        }
    }

    async fn post(&self, body: Bytes) -> Result<StatusCode, String> {
        let endpoint = &self.settings.endpoint;
        let host = endpoint.host().unwrap_or_default();
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let port = endpoint
            .port_u16()
            .unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((name, port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let request = self.request(body)?;
        match &self.tls {
            None => exchange(TokioIo::new(stream), request).await,
            Some(tls) => {
                let name = ServerName::try_from(name.to_owned());
                let name = name.map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await;
                exchange(
                    TokioIo::new(stream.map_err(|error| error.to_string())?),
                    request,
                )
                .await
            }
        }
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let authority = self.settings.endpoint.authority();
        let authority = authority.map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority).map_err(|error| error.to_string())?;
        let request = Request::post(self.settings.path()).body(Full::new(body));
        let mut request = request.map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(HOST, host);
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        Ok(request)
    }
}

async fn exchange(
    io: impl Read + Write + Unpin + Send,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, String> {
    let client = hyper::client::conn::http1::handshake(io).await;
    let (mut sender, connection) = client.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request);
    tokio::select! {
        answer = answer => answer.map(|answer| answer.status()).map_err(|error| error.to_string()),
        ended = connection => Err(ended.map_or_else(
            |error| error.to_string(),
            |()| "it closed the connection".to_owned(),
        )),
    }
}

fn connector(path: &Path) -> Result<TlsConnector, CollectorError> {
    let content = |reason: String| CollectorError::Content {
        path: path.to_owned(),
        reason,
    };
    let pem = open::read(path, Rule::Named, MAX_FILE_BYTES)?;
    let mut roots = RootCertStore::empty();
    for certificate in pem::read::<CertificateDer<'_>>(&pem) {
        let certificate = certificate.map_err(|error| content(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| content(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(content("expected certificates in PEM".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| content(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_url_is_validated_and_hides_password() {
        let of =
            |url: &str, ca: Option<&str>| CollectorSettings::new(url, ca.map(PathBuf::from), None);
        let path = |url: &str| of(url, None).map(|settings| settings.path().to_owned());
        assert_eq!(path("http://[::1]:4318").ok().as_deref(), Some(PATH));
        assert_eq!(path("http://here/x/y").ok().as_deref(), Some("/x/y"));
        assert!(of("https://here", Some("ca.pem")).is_ok());
        for (url, ca, expected) in [
            ("", None, "not a URL"),
            ("collector:4318", None, "neither"),
            ("/v1/traces", None, "no host"),
            ("grpc://here", None, "neither"),
            ("https://here", None, "needs --spans-ca"),
            ("http://here", Some("ca.pem"), "an https URL"),
            ("http://me:s3cret@here", None, "credentials"),
            ("http://here/?key=1", None, "query"),
        ] {
            let error = of(url, ca).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(
                error.contains(expected) && !error.contains("s3cret"),
                "{url}: {error}"
            );
        }
    }
}
