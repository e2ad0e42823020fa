//! Certificates for tests: authorities, and the leaf certificates that they issue.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, CustomExtension, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, SigningKey as _,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

const NAMESPACE: &str = "default";

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    /// Creates an authority with a new key.
    pub fn new(name: &str) -> Self {
        Self::from_params(Self::own_params(name))
    }

    /// Creates an authority with this serial number. Authorities with the same name and serial
    /// number differ only in their keys.
    pub fn with_serial(name: &str, serial: u64) -> Self {
        let mut params = Self::own_params(name);
        params.serial_number = Some(SerialNumber::from(serial));
        Self::from_params(params)
    }

    /// Creates an authority with this validity period.
    pub fn valid(name: &str, from: SystemTime, until: SystemTime) -> Self {
        let mut params = Self::own_params(name);
        (params.not_before, params.not_after) = (from.into(), until.into());
        Self::from_params(params)
    }

    fn own_params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    fn from_params(params: CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Issues a certificate for the given names, with a new key.
    pub fn issue(&self, names: &[&str]) -> Leaf {
        self.issue_with_uris(names, &[])
    }

    /// Issues a certificate for the given names and URIs, with a new key.
    pub fn issue_with_uris(&self, names: &[&str], uris: &[&str]) -> Leaf {
        self.issue_from(Self::params(names), uris)
    }

    /// Like [`Self::issue`], but with an authority key identifier, like certificates from public
    /// CAs.
    pub fn issue_with_key_identifier(&self, names: &[&str]) -> Leaf {
        let mut params = Self::params(names);
        params.use_authority_key_identifier_extension = true;
        self.issue_from(params, &[])
    }

    /// Issues a certificate for the given names and validity period.
    pub fn issue_valid(&self, names: &[&str], from: SystemTime, until: SystemTime) -> Leaf {
        let mut params = Self::params(names);
        (params.not_before, params.not_after) = (from.into(), until.into());
        self.issue_from(params, &[])
    }

    /// Issues a certificate that expires `days` days after 00:00 UTC today.
    pub fn issue_until(&self, names: &[&str], days: i64) -> Leaf {
        let mut params = Self::params(names);
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        let end = end.to_zoned(jiff::tz::TimeZone::UTC).date();
        let (month, day) = (end.month().unsigned_abs(), end.day().unsigned_abs());
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(end.year().into(), month, day);
        self.issue_from(params, &[])
    }

    /// Issues a certificate with the OCSP must-staple extension.
    pub fn issue_must_staple(&self, names: &[&str]) -> Leaf {
        let mut params = Self::params(names);
        let feature = [1, 3, 6, 1, 5, 5, 7, 1, 24];
        let status_request = vec![0x30, 3, 2, 1, 5];
        let feature = CustomExtension::from_oid_content(&feature, status_request);
        params.custom_extensions.push(feature);
        self.issue_from(params, &[])
    }

    /// Signs the bytes with ECDSA and SHA-256.
    pub fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.issuer.key().sign(bytes).expect("a signature")
    }

    /// Returns the authority's certificate.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Issues a certificate for the given names and an existing key.
    pub fn issue_for_key(&self, names: &[&str], key_pem: &str) -> Leaf {
        let key = KeyPair::from_pem(key_pem).expect("a key");
        self.sign(&Self::params(names), &key)
    }

    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        CertificateParams::new(names).expect("host names")
    }

    fn issue_from(&self, mut params: CertificateParams, uris: &[&str]) -> Leaf {
        let uris = uris
            .iter()
            .map(|uri| SanType::URI((*uri).try_into().expect("ASCII")));
        params.subject_alt_names.extend(uris);
        self.sign(&params, &KeyPair::generate().expect("a key"))
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Leaf {
        let mut serial = key.public_key_raw().to_vec();
        serial.truncate(16);
        serial.insert(0, 1);
        let serial = SerialNumber::from(serial);
        let mut params = params.clone();
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(key, &self.issuer).expect("a certificate");
        Leaf {
            serial,
            der: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Returns a PEM-encoded CRL. Unless `valid` is true, it expired an hour ago.
    pub fn revocation_list(&self, revoked: &[&Leaf], valid: bool) -> String {
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        let revoked = revoked.iter().map(|leaf| RevokedCertParams {
            serial_number: leaf.serial.clone(),
            revocation_time: (now - 2 * hour).into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: (now - 2 * hour).into(),
            next_update: if valid { now + 24 * hour } else { now - hour }.into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("a revocation list");
        list.pem().expect("PEM")
    }

    /// Returns the authority's private key.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Signs a certificate signing request; the certificate is valid for `life`.
    pub fn answer(&self, request: &str, life: Duration) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(request).expect("a request");
        let now = SystemTime::now();
        request.params.not_before = now.into();
        request.params.not_after = (now + life).into();
        let certificate = request.signed_by(&self.issuer).expect("a certificate");
        certificate.pem()
    }

    /// Returns the authority's certificate in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns a root store that trusts only this authority.
    pub fn trust(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority");
        Arc::new(roots)
    }

    /// Returns a ConfigMap with the certificates of the given authorities.
    pub fn config_map(name: &str, authorities: &[&Self]) -> Value {
        let pem: String = authorities
            .iter()
            .map(|authority| authority.pem())
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {"ca.crt": pem},
        })
    }
}

/// A leaf certificate and its private key.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate in DER.
    pub der: CertificateDer<'static>,
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The private key in PEM.
    pub key_pem: String,
    serial: SerialNumber,
}

// Debug output must not contain the private key.
impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf").finish_non_exhaustive()
    }
}

impl Leaf {
    /// Returns a TLS acceptor that presents this certificate and offers HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_for(None)
    }

    /// Like [`Self::acceptor`], but requires a client certificate from one of these authorities.
    pub fn acceptor_for(&self, clients: Option<Arc<RootCertStore>>) -> TlsAcceptor {
        let key = self.key().expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(clients, provider)
                    .build()
                    .expect("an authority"),
            ),
        };
        let mut config = config
            .with_single_cert(vec![self.der.clone()], key)
            .expect("the key matches the certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// Parses the private key.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, rustls_pki_types::pem::Error> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
    }

    /// Returns a TLS Secret with an OCSP response.
    pub fn stapled_secret(&self, name: &str, staple: &[u8]) -> Value {
        let mut secret = self.secret(name);
        let staple = base64::engine::general_purpose::STANDARD.encode(staple);
        secret["data"]["tls.ocsp-staple"] = staple.into();
        secret
    }

    /// Returns a TLS Secret.
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
