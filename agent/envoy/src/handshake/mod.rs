//! Proves with TLS handshakes that this host's listeners present the accepted certificates.
//!
//! Never sends a request. Trusts no certificate authority: a certificate must be identical to an
//! expected one.

mod client;
pub mod proofs;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

pub use self::client::prove;
pub use self::proofs::{ChangedKeys, proofs};

/// Key type that the client accepts, which determines the certificate that Envoy presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    Rsa,
    Other,
}

/// Handshake that proves that a listener presents an accepted certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProof {
    /// Name of the listener, such as `Gateway/shop/edge/listeners/https`.
    pub listener: String,
    /// Name of the key pair to prove, such as `Secret/shop/cart`.
    pub key: String,
    address: SocketAddr,
    server_name: String,
    /// The listener expects a PROXY protocol header.
    proxy_header: bool,
    kind: ShownKind,
    /// The listener's leaf certificates, of which Envoy may present any.
    leaves: Vec<CertificateDer<'static>>,
}

/// Failed proof, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// The failed proof.
    pub proof: CertificateProof,
    /// Reason, as shown to users.
    pub why: String,
}
