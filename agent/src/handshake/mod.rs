//! Handshakes with this host's own listeners, which prove that new connections are shown the certificates that were accepted.
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

/// Kind of key that a client says it can verify, so that it is shown the certificate of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShownKind {
    /// RSA.
    Rsa,
    /// Anything else: ECDSA, Ed25519.
    Other,
}

/// A handshake, and the expected certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateProof {
    /// Name of the listener in the snapshot.
    pub(crate) listener: String,
    /// Name of the key pair that has changed.
    pub(crate) key: String,
    address: SocketAddr,
    server_name: String,
    kind: ShownKind,
    /// Leaves of the listener's key pairs, any of which is right: which of several a client is shown is Envoy's choice.
    leaves: Vec<CertificateDer<'static>>,
}

/// A handshake that presented another certificate, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub(crate) proof: CertificateProof,
    /// Fault of it, as a sentence.
    pub(crate) why: String,
}
