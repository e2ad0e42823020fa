//! Certificates for tests: an authority, and leaves that it signs.

use std::sync::Arc;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::manifests::NAMESPACE;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    /// A new authority with a fresh key.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for these names, with a fresh key.
    pub fn issue(&self, names: &[&str]) -> Leaf {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).expect("host names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Leaf {
            der: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// The authority's certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What a client needs to trust this authority, and no other.
    pub fn trust(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority");
        Arc::new(roots)
    }
}

/// A certificate and its key.
pub struct Leaf {
    /// The certificate.
    pub der: CertificateDer<'static>,
    /// The certificate.
    pub certificate_pem: String,
    /// The private key.
    pub key_pem: String,
}

impl Leaf {
    /// What a server needs to show this certificate; offers HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key)
            .expect("a certificate with its key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// The Secret that holds this pair.
    pub fn secret(&self, name: &str) -> Value {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": encode(&self.certificate_pem),
                "tls.key": encode(&self.key_pem),
            },
        })
    }
}
