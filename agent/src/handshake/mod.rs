//! Proves with TLS handshakes that this host's listeners present the accepted certificates.
//!
//! Never sends a request. Trusts no certificate authority: a certificate must be identical to an
//! expected one.

mod client;
mod proofs;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

pub(crate) use self::client::prove;
pub(crate) use self::proofs::{ChangedKeys, proofs};

/// Key type that the client accepts, which determines the certificate that Envoy presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    Rsa,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateProof {
    pub(crate) listener: String,
    pub(crate) key: String,
    address: SocketAddr,
    server_name: String,
    /// The listener expects a PROXY protocol header.
    proxy_header: bool,
    kind: ShownKind,
    /// The listener's leaf certificates, of which Envoy may present any.
    leaves: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub(crate) proof: CertificateProof,
    /// Reason, as shown to users.
    pub(crate) why: String,
}
