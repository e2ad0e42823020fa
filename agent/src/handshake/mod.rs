//! Handshakes with this host's own listeners, which prove that new connections get the accepted
//! certificates.
//!
//! Never send a request, and never trust the peer: certificates are compared with the expected ones
//! byte for byte.

mod client;
mod proofs;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

pub(crate) use self::client::prove;
pub(crate) use self::proofs::{ChangedKeys, proofs};

/// Kind of key that the client claims to support, so that the server presents a certificate of that
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    /// RSA.
    Rsa,
    /// Anything else: ECDSA, Ed25519.
    Other,
}

/// Handshake with a listener, and the certificates that prove success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateProof {
    /// Name of the listener in the snapshot.
    pub(crate) listener: String,
    /// Name of the key pair that has changed.
    pub(crate) key: String,
    address: SocketAddr,
    server_name: String,
    kind: ShownKind,
    /// Leaf certificates of the listener's key pairs. Any of them is correct: Envoy chooses which
    /// one to present.
    leaves: Vec<CertificateDer<'static>>,
}

/// Handshake that presented an unexpected certificate, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub(crate) proof: CertificateProof,
    /// Why it failed, as a sentence.
    pub(crate) why: String,
}
