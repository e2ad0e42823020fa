//! TLS handshakes by clients with limited TLS versions, cipher suites, signature schemes and
//! application protocols.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, ProtocolVersion, RootCertStore,
    SignatureScheme, SupportedProtocolVersion, version,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A TLS client that has not connected yet.
#[derive(Clone, Debug)]
pub struct Handshake {
    address: SocketAddr,
    sni: String,
    trust: Arc<RootCertStore>,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: CryptoProvider,
    alpn: Vec<Vec<u8>>,
}

/// The parameters that the client and the server negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The TLS version.
    pub version: ProtocolVersion,
    /// The cipher suite.
    pub suite: CipherSuite,
    /// The key exchange group.
    pub group: NamedGroup,
    /// The application protocol.
    pub alpn: Option<String>,
    /// The leaf certificate that the server presented.
    pub certificate: CertificateDer<'static>,
    /// Stapled OCSP response, or empty.
    pub staple: Vec<u8>,
}

impl Handshake {
    /// Creates a client for TLS 1.2 and 1.3 that trusts only these authorities.
    pub fn with(address: SocketAddr, sni: &str, trust: &Arc<RootCertStore>) -> Self {
        Self {
            address,
            sni: sni.to_owned(),
            trust: Arc::clone(trust),
            versions: vec![&version::TLS12, &version::TLS13],
            provider: rustls::crypto::ring::default_provider(),
            alpn: Vec::new(),
        }
    }

    /// Limits the client to TLS 1.2.
    #[must_use]
    pub fn tls12(mut self) -> Self {
        self.versions = vec![&version::TLS12];
        self
    }

    /// Restricts the client to the given cipher suites.
    #[must_use]
    pub fn suites(mut self, suites: &[CipherSuite]) -> Self {
        self.provider
            .cipher_suites
            .retain(|known| suites.contains(&known.suite()));
        self
    }

    /// Restricts the client to the given key exchange groups.
    #[must_use]
    pub fn groups(mut self, groups: &[NamedGroup]) -> Self {
        self.provider
            .kx_groups
            .retain(|known| groups.contains(&known.name()));
        self
    }

    /// Restricts the signature schemes of the handshake, but not of certificates.
    #[must_use]
    pub fn signatures(mut self, schemes: &[SignatureScheme]) -> Self {
        let known = &mut self.provider.signature_verification_algorithms;
        let taken: Vec<_> = known
            .mapping
            .iter()
            .filter(|(scheme, _)| schemes.contains(scheme))
            .copied()
            .collect();
        // The field requires a static lifetime. Leaking is acceptable for a test's few clients.
        known.mapping = Box::leak(taken.into_boxed_slice());
        self
    }

    /// Offers the given application protocols.
    #[must_use]
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        self
    }

    /// Connects to `address` and performs the handshake.
    pub async fn shake(&self) -> Result<Agreed> {
        let provider = Arc::new(self.provider.clone());
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::clone(&self.trust),
            Arc::clone(&provider),
        )
        .build()?;
        let seen = Arc::new(StapleSeen {
            verifier,
            staple: Mutex::default(),
        });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&seen) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        config.alpn_protocols.clone_from(&self.alpn);
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        let name = ServerName::try_from(self.sni.clone()).context("server name")?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .context("TLS handshake")?;
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        Ok(Agreed {
            version: session.protocol_version().context("a version")?,
            suite: session
                .negotiated_cipher_suite()
                .context("a suite")?
                .suite(),
            group: session
                .negotiated_key_exchange_group()
                .context("a group")?
                .name(),
            alpn: session
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
            certificate: certificates
                .first()
                .context("a certificate")?
                .clone()
                .into_owned(),
            staple: seen.staple.lock().expect("no panic").clone(),
        })
    }
}

/// Verifies certificates as usual, and records the stapled OCSP response.
#[derive(Debug)]
struct StapleSeen {
    verifier: Arc<WebPkiServerVerifier>,
    staple: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for StapleSeen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.staple.lock().expect("no panic") = ocsp_response.to_vec();
        self.verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
