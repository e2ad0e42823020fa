//! TLS client that records a listener's certificate.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sesame_kinds::certificate_facts::CertificateFacts;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CertificateProof, ShownKind, Unproven};

const TIMEOUT: Duration = Duration::from_secs(3);
const AT_ONCE: usize = 8;
/// PROXY protocol header, version 2, command LOCAL: the connection's own addresses apply.
const PROXY_LOCAL: &[u8; 16] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Performs the handshakes concurrently. Returns the failed ones, sorted by listener.
pub async fn prove(proofs: Vec<CertificateProof>) -> Vec<Unproven> {
    let all = proofs.into_iter().map(async |proof| {
        let why = fault(&proof).await?;
        Some(Unproven { proof, why })
    });
    let outcomes = futures::stream::iter(all).buffer_unordered(AT_ONCE);
    let mut unproven: Vec<Unproven> = outcomes.filter_map(std::future::ready).collect().await;
    unproven.sort_by(|a, b| a.proof.listener.cmp(&b.proof.listener));
    unproven
}

async fn fault(proof: &CertificateProof) -> Option<String> {
    let CertificateProof {
        listener: _,
        key,
        address,
        server_name,
        proxy_header: _,
        kind: _,
        leaves,
    } = proof;
    let verifier = Arc::new(RecordingVerifier::new(proof));
    let shaken = tokio::time::timeout(TIMEOUT, shake(proof, &verifier)).await;
    let with = format!("a handshake with {address} for {server_name}");
    match verifier.shown.get() {
        // Ignore later errors. For example, the listener may reject clients without a certificate.
        Some(shown) if leaves.contains(shown) => None,
        Some(shown) => {
            let serial = serial_of(shown);
            Some(format!(
                "{with} returned the certificate with serial number {serial}, expected the certificate of {key}"
            ))
        }
        None => {
            let why = match shaken {
                Ok(Ok(())) => "there was none".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no response within {} s", TIMEOUT.as_secs()),
            };
            Some(format!("{with} returned no certificate: {why}"))
        }
    }
}

async fn shake(
    proof: &CertificateProof,
    verifier: &Arc<RecordingVerifier>,
) -> Result<(), std::io::Error> {
    let name = ServerName::try_from(proof.server_name.clone()).map_err(std::io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(verifier) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let mut stream = TcpStream::connect(proof.address).await?;
    if proof.proxy_header {
        stream.write_all(PROXY_LOCAL).await?;
    }
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    stream.shutdown().await
}

fn serial_of(certificate: &CertificateDer<'_>) -> String {
    CertificateFacts::from_der(certificate).map_or_else(|| "unknown".to_owned(), |it| it.serial)
}

#[derive(Debug)]
struct RecordingVerifier {
    leaves: Vec<CertificateDer<'static>>,
    shown: OnceLock<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    schemes: Vec<SignatureScheme>,
}

impl RecordingVerifier {
    fn new(proof: &CertificateProof) -> Self {
        let CryptoProvider {
            signature_verification_algorithms: algorithms,
            ..
        } = rustls::crypto::ring::default_provider();
        let has_kind = |scheme: &SignatureScheme| {
            let name = scheme.as_str().unwrap_or_default();
            name.starts_with("RSA") == (proof.kind == ShownKind::Rsa)
        };
        let mut schemes = algorithms.supported_schemes();
        schemes.retain(has_kind);
        if proof.kind == ShownKind::Other {
            // rustls cannot verify these signatures, but offering the scheme is enough, because the
            // server presents its certificate first.
            schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
            schemes.dedup();
        }
        Self {
            leaves: proof.leaves.clone(),
            shown: OnceLock::new(),
            algorithms,
            schemes,
        }
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = self.shown.get_or_init(|| leaf.clone().into_owned());
        if self.leaves.contains(shown) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("another certificate".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
