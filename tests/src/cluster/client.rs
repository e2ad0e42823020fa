//! A simple API client: JSON over one HTTP/2 connection. It caches only the resource names
//! of kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::client::conn::http2;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::response::Parts;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::identity::{Credentials, Identity};

const FIELD_MANAGER: &str = "sesame-tests";

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Timeout per request, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The reason for a failed request.
#[derive(Debug)]
pub enum Failure {
    /// The response was missing or incomplete.
    Unreachable(anyhow::Error),
    /// The API server rejected the request.
    Refused {
        /// The HTTP status.
        code: u16,
        /// The machine-readable reason, such as `Forbidden`, `Invalid` or `NotFound`.
        reason: String,
        /// The error message.
        message: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "no response: {error:#}"),
            Self::Refused {
                code,
                reason,
                message,
            } => write!(f, "{code} {reason}: {message}"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Returns true if the API server returned this HTTP status.
    pub fn is(&self, status: u16) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == status)
    }
}

#[derive(Clone, Debug)]
struct Kind {
    plural: String,
    namespaced: bool,
}

/// An API client for one user. No `Debug`, because it holds keys.
pub struct Client {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    token: Option<String>,
    connection: Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
    kinds: Mutex<BTreeMap<(String, String), Kind>>,
}

impl Client {
    pub(super) fn new(address: SocketAddr, identity: &Identity, credentials: Credentials) -> Self {
        Self::trusting(address, identity.server_authority.trust(), credentials)
    }

    /// Creates a client with a bearer token that trusts PEM certificates.
    pub fn bearing(address: SocketAddr, authorities: &[u8], token: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(authorities);
        roots.add_parsable_certificates(certificates.map(|one| one.expect("a certificate")));
        let credentials = Credentials::Token(token.to_owned());
        Self::trusting(address, Arc::new(roots), credentials)
    }

    fn trusting(
        address: SocketAddr,
        authorities: Arc<RootCertStore>,
        credentials: Credentials,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports TLS 1.3")
            .with_root_certificates(authorities);
        let (mut tls, token) = match credentials {
            Credentials::Certificate { certificate, key } => {
                let chain = CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
                let chain = vec![chain.expect("a certificate")];
                let tls = builder.with_client_auth_cert(chain, key.expect("a key"));
                (tls.expect("a certificate and its key"), None)
            }
            Credentials::Token(token) => (builder.with_no_client_auth(), Some(token)),
        };
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            address,
            tls: Arc::new(tls),
            token,
            connection: Mutex::new(None),
            kinds: Mutex::new(BTreeMap::new()),
        }
    }

    /// Reads the object or list at `path`.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.send(Method::GET, path, JSON, None).await
    }

    /// POSTs `object` to the collection at `path`.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, Failure> {
        self.send(Method::POST, path, JSON, Some(object)).await
    }

    /// Applies a JSON merge patch at `path`.
    pub async fn merge(&self, path: &str, change: &Value) -> Result<Value, Failure> {
        self.send(Method::PATCH, path, MERGE, Some(change)).await
    }

    /// Applies a JSON Patch (RFC 6902) at `path`.
    pub async fn json_patch(&self, path: &str, operations: &Value) -> Result<Value, Failure> {
        self.send(Method::PATCH, path, JSON_PATCH, Some(operations))
            .await
    }

    /// Deletes the object at `path`.
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.send(Method::DELETE, path, JSON, None).await
    }

    /// Applies the objects in order until one is rejected.
    pub async fn apply(&self, yaml: &str) -> Result<Vec<Value>, Failure> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("the test's YAML");
        let mut stored = Vec::new();
        for object in &objects {
            stored.push(self.apply_value(object).await?);
        }
        Ok(stored)
    }

    /// Applies one object by server-side apply, and takes over conflicting fields. The namespace is
    /// `default` unless the object specifies one.
    pub async fn apply_value(&self, object: &Value) -> Result<Value, Failure> {
        let path = self.path_of(object).await?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        self.send(Method::PATCH, &path, APPLY, Some(object)).await
    }

    /// Validates an object with a strict dry run.
    pub async fn try_value(&self, object: &Value) -> Result<(), Failure> {
        let path = self.path_of(object).await?;
        let path = format!(
            "{path}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict&dryRun=All"
        );
        self.send(Method::PATCH, &path, APPLY, Some(object)).await?;
        Ok(())
    }

    /// Returns an object's API path, in the namespace `default` unless the object specifies one.
    pub async fn path_of(&self, object: &Value) -> Result<String, Failure> {
        let field = |value: &Value| {
            let text = value.as_str().map(str::to_owned);
            text.unwrap_or_else(|| panic!("apiVersion, kind or name is missing: {object}"))
        };
        let version = field(&object["apiVersion"]);
        let metadata = &object["metadata"];
        let name = field(&metadata["name"]);
        let kind = self.kind(&version, &field(&object["kind"])).await?;
        let group = group_path(&version);
        let plural = kind.plural;
        Ok(if kind.namespaced {
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            format!("{group}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("{group}/{plural}/{name}")
        })
    }

    /// Reads `path` and returns the response body as text.
    pub async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let (_, body) = self.exchange(Method::GET, path, JSON, None).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Returns the UID of the FlowSchema that matches this user's GET of `path`.
    pub async fn flow_schema(&self, path: &str) -> Result<String> {
        let (parts, _) = self.exchange_slowly(Method::GET, path, JSON, None).await?;
        let value = parts.headers.get("x-kubernetes-pf-flowschema-uid");
        let value =
            value.with_context(|| format!("{path}: the response has no FlowSchema header"))?;
        Ok(value.to_str()?.to_owned())
    }

    pub(super) async fn forget_kinds(&self) {
        self.kinds.lock().await.clear();
    }

    async fn kind(&self, version: &str, kind: &str) -> Result<Kind, Failure> {
        let key = (version.to_owned(), kind.to_owned());
        let mut kinds = self.kinds.lock().await;
        if let Some(found) = kinds.get(&key) {
            return Ok(found.clone());
        }
        let list = self.get(&group_path(version)).await?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            // A slash in the name marks a subresource.
            let plural = resource["name"].as_str().filter(|name| !name.contains('/'));
            if let (Some(plural), Some(kind)) = (plural, resource["kind"].as_str()) {
                let found = Kind {
                    plural: plural.to_owned(),
                    namespaced: resource["namespaced"] == true,
                };
                kinds.insert((version.to_owned(), kind.to_owned()), found);
            }
        }
        kinds.get(&key).cloned().ok_or_else(|| Failure::Refused {
            code: 404,
            reason: "NotFound".to_owned(),
            message: format!("the API server does not serve {version} {kind}"),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let (code, body) = self.exchange(method, path, content_type, body).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let text = String::from_utf8_lossy(&body).into_owned();
            Failure::Unreachable(anyhow::anyhow!(
                "invalid JSON in {code} response ({error}): {text}"
            ))
        })
    }

    /// Returns an error unless the status is 2xx.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Bytes), Failure> {
        let exchange = self.exchange_slowly(method, path, content_type, body);
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let (parts, body) = answer
            .with_context(|| format!("{path}: timed out after {TIMEOUT:?}"))
            .flatten()
            .map_err(Failure::Unreachable)?;
        let code = parts.status.as_u16();
        if (200..300).contains(&code) {
            return Ok((code, body));
        }
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |field: &Value| field.as_str().map(str::to_owned);
        Err(Failure::Refused {
            code,
            reason: text(&status["reason"]).unwrap_or_default(),
            message: text(&status["message"])
                .unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()),
        })
    }

    async fn exchange_slowly(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<(Parts, Bytes)> {
        let body = body.map(serde_json::to_vec).transpose()?;
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header(CONTENT_TYPE, content_type);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        let mut sender = self.connection().await?;
        let response = sender.send_request(request).await.context("send")?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.context("read the body")?.to_bytes();
        Ok((parts, body))
    }

    async fn connection(&self) -> Result<http2::SendRequest<Full<Bytes>>> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(open.clone());
        }
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.context("handshake")?;
        let io = TokioIo::new(stream);
        let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(driver);
        *connection = Some(sender.clone());
        Ok(sender)
    }
}

/// Returns `/api/v1` for the core group, and `/apis/{group}/{version}` for others.
fn group_path(version: &str) -> String {
    if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    }
}
