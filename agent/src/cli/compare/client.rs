//! Sends one request to one gateway. Each request has a new connection, like a new client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme};
use hyper::{HeaderMap, Request, Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    ClientConfig, DigitallySignedStruct, ProtocolVersion, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sesame_explain::UrlScheme;
use sesame_files::open::{self, Rule};
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_proto::{digest, pem};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::requests::{GatewayUrl, SentRequest};

const MAX_CA_BYTES: u64 = 4 << 20;
/// Maximum size of a response's headers over HTTP/2. HTTP/1 connections use the same buffer size.
const MAX_HEADER_BYTES: usize = 256 << 10;

/// How a gateway answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GatewayAnswer {
    Received(Box<ReceivedAnswer>),
    Failed { certificate: bool, reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedAnswer {
    /// HTTP version, and TLS version if the connection uses TLS.
    pub(super) protocol: String,
    /// Digest and description of the certificate.
    pub(super) certificate: Option<(String, String)>,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Number of bytes read, at most the limit.
    pub(super) body_bytes: usize,
    pub(super) body_digest: String,
}

/// Sends requests to one gateway.
#[derive(Debug)]
pub(super) struct GatewayClient {
    pub(super) url: GatewayUrl,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    max_body: usize,
}

impl GatewayClient {
    pub(super) fn new(
        url: GatewayUrl,
        tls: Arc<ClientConfig>,
        timeout: Duration,
        max_body: usize,
    ) -> Self {
        Self {
            url,
            tls,
            timeout,
            max_body,
        }
    }

    pub(super) async fn send(&self, request: &SentRequest) -> GatewayAnswer {
        let answer = tokio::time::timeout(self.timeout, self.answer(request)).await;
        let error = match answer {
            Ok(Ok(answer)) => return GatewayAnswer::Received(Box::new(answer)),
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("no complete response within {:?}", self.timeout),
        };
        let is_certificate = |cause: &(dyn std::error::Error + 'static)| {
            let error = cause.downcast_ref::<std::io::Error>();
            let tls = error.and_then(|it| it.get_ref()?.downcast_ref::<rustls::Error>());
            matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
        };
        GatewayAnswer::Failed {
            certificate: error.chain().any(is_certificate),
            reason: format!("{error:#}"),
        }
    }

    async fn answer(&self, request: &SentRequest) -> anyhow::Result<ReceivedAnswer> {
        let GatewayUrl { scheme, host, port } = &self.url;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.context("cannot connect")?;
        if *scheme == UrlScheme::Http {
            let response = over_http1(stream, request).await?;
            return self.received(response, None, None).await;
        }
        let name = ServerName::try_from(request.server_name.clone());
        let name = name.context("the host is not a valid server name")?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.map(describe_certificate);
        let version = session.protocol_version();
        let response = if session.alpn_protocol() == Some(b"h2") {
            over_http2(stream, request).await?
        } else {
            over_http1(stream, request).await?
        };
        self.received(response, version, certificate).await
    }

    async fn received(
        &self,
        response: Response<Incoming>,
        tls: Option<ProtocolVersion>,
        certificate: Option<(String, String)>,
    ) -> anyhow::Result<ReceivedAnswer> {
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the body is incomplete")?;
            let data = frame.into_data().unwrap_or_default();
            let room = self.max_body - bytes.len();
            bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
            if bytes.len() == self.max_body {
                break;
            }
        }
        let tls = tls.and_then(|it| it.as_str()).map(|it| format!(", {it}"));
        Ok(ReceivedAnswer {
            protocol: format!("{:?}{}", parts.version, tls.unwrap_or_default()),
            certificate,
            status: parts.status.as_u16(),
            headers: parts.headers,
            body_bytes: bytes.len(),
            body_digest: digest::sha256(&bytes),
        })
    }
}

async fn over_http1(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: &SentRequest,
) -> anyhow::Result<Response<Incoming>> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEADER_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let message = message(request, Uri::from(request.target.clone()), true)?;
    // The connection ends with the sender and the response's body.
    tokio::spawn(connection);
    Ok(sender.send_request(message).await?)
}

async fn over_http2(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: &SentRequest,
) -> anyhow::Result<Response<Incoming>> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(u32::try_from(MAX_HEADER_BYTES)?);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut uri = hyper::http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(Authority::try_from(request.authority.as_str())?);
    uri.path_and_query = Some(request.target.clone());
    let message = message(request, Uri::from_parts(uri)?, false)?;
    tokio::spawn(connection);
    Ok(sender.send_request(message).await?)
}

fn message(
    request: &SentRequest,
    uri: Uri,
    with_host: bool,
) -> anyhow::Result<Request<Empty<Bytes>>> {
    let mut message = Request::new(Empty::new());
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = uri;
    message.headers_mut().clone_from(&request.headers);
    if with_host {
        *message.version_mut() = Version::HTTP_11;
        let host = request.authority.parse()?;
        message.headers_mut().insert(HOST, host);
    }
    Ok(message)
}

fn describe_certificate(certificate: &CertificateDer<'_>) -> (String, String) {
    let digest = digest::sha256(certificate);
    let words = CertificateFacts::from_der(certificate).map_or_else(
        || "an unreadable certificate".to_owned(),
        |it| format!("the certificate with serial number {}", it.serial),
    );
    (digest, words)
}

/// Trusts the certificates in `ca`, or the system's if `None`, or all with `insecure`.
pub(super) fn tls(ca: Option<&Path>, insecure: bool) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = if insecure {
        let verifier = Arc::new(AnyCertificate(provider));
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        builder.with_no_client_auth()
    } else {
        let builder = builder.with_root_certificates(roots(ca)?);
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(ca: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        return Ok(roots);
    };
    let text = open::read_text(path, Rule::GivenByLink, MAX_CA_BYTES)?;
    for certificate in pem::read::<CertificateDer<'_>>(text.as_bytes()) {
        let added = roots.add(certificate.with_context(|| path.display().to_string())?);
        added.with_context(|| path.display().to_string())?;
    }
    ensure!(
        !roots.is_empty(),
        "{}: no certificate found",
        path.display()
    );
    Ok(roots)
}

/// Accepts any certificate, but only with a valid signature of its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
