//! Performs TLS handshakes with this host's own listeners, to prove that they present the accepted
//! certificates on new connections.
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

/// Key type that the client offers. The server then presents a certificate with such a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    /// RSA.
    Rsa,
    /// Any key type except RSA, such as ECDSA.
    Other,
}

/// A handshake to perform with one listener, and the certificates that the listener may present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateProof {
    /// Name of the listener in the snapshot.
    pub(crate) listener: String,
    /// Name of the changed key pair.
    pub(crate) key: String,
    address: SocketAddr,
    server_name: String,
    kind: ShownKind,
    /// Leaf certificates of all key pairs of the listener. Any of them is correct, because Envoy
    /// chooses the certificate.
    leaves: Vec<CertificateDer<'static>>,
}

/// A handshake in which the listener presented no certificate or an unexpected certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub(crate) proof: CertificateProof,
    /// Why the handshake failed, as a sentence for users.
    pub(crate) why: String,
}
