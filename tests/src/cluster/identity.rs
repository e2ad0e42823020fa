//! Identities in the cluster: the CAs, the API server, the administrator, and the key that signs
//! tokens.

use std::net::IpAddr;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::certs::{Authority, Leaf};

const SERVER_NAMES: [&str; 4] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default.svc",
];

/// No `Debug`, because they contain secrets.
#[derive(Clone)]
pub(super) enum Credentials {
    Certificate { certificate: String, key: String },
    Token(String),
}

pub(super) struct Identity {
    pub(super) server_authority: Authority,
    pub(super) server: Leaf,
    /// The CA of client certificates, separate from the server CA.
    pub(super) client_authority_pem: String,
    pub(super) token_key_pem: String,
    /// Stored separately, because the API server cannot read elliptic-curve keys in PKCS#8 for
    /// verification.
    pub(super) token_public_key_pem: String,
    admin: Credentials,
}

impl Identity {
    /// The server certificate contains `address`.
    pub(super) fn new(address: impl Into<IpAddr>) -> Self {
        let server_authority = Authority::new("test cluster: servers");
        let address = address.into().to_string();
        let mut names = vec![address.as_str()];
        names.extend(SERVER_NAMES.iter().filter(|name| **name != address));
        let server = server_authority.issue(&names);
        let (client_authority_pem, admin) = admin();
        let token_key = KeyPair::generate().expect("a key");
        Self {
            server_authority,
            server,
            client_authority_pem,
            token_key_pem: token_key.serialize_pem(),
            token_public_key_pem: token_key.public_key_pem(),
            admin,
        }
    }

    pub(super) fn admin(&self) -> Credentials {
        self.admin.clone()
    }

    pub(super) fn kubeconfig(&self, url: &str, credentials: &Credentials) -> String {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let user: Value = match credentials {
            Credentials::Certificate { certificate, key } => json!({
                "client-certificate-data": encode(certificate),
                "client-key-data": encode(key),
            }),
            Credentials::Token(token) => json!({"token": token}),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": url,
                "certificate-authority-data": encode(self.server_authority.pem()),
            }}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        serde_saphyr::to_string(&config).expect("values are YAML")
    }
}

fn admin() -> (String, Credentials) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "test cluster: clients");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "admin");
    name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let credentials = Credentials::Certificate {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    };
    (authority, credentials)
}
