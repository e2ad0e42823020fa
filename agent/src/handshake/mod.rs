//! Performs handshakes with this host's own listeners, to prove that new connections get the
//! accepted certificates.
//!
//! Never sends a request, and never trusts the peer: certificates are compared byte by byte with
//! the expected ones.

mod client;
mod proofs;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

pub(crate) use self::client::prove;
pub(crate) use self::proofs::{ChangedKeys, proofs};

/// Key type that the client claims to support, so that the server presents a certificate with such
/// a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    /// RSA.
    Rsa,
    /// Any other type: ECDSA, Ed25519.
    Other,
}

/// Handshake to perform with a listener, and the certificates that prove success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateProof {
    /// Name of the listener in the snapshot.
    pub(crate) listener: String,
    /// Name of the changed key pair.
    pub(crate) key: String,
    address: SocketAddr,
    server_name: String,
    kind: ShownKind,
    /// Leaf certificates of the listener's key pairs. Any of them is correct, because Envoy chooses
    /// which one to present.
    leaves: Vec<CertificateDer<'static>>,
}

/// Handshake in which the listener presented an unexpected certificate or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub(crate) proof: CertificateProof,
    /// Sentence that explains why the handshake failed.
    pub(crate) why: String,
}
