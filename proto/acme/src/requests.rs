//! Which certificates the configuration requests.

use std::collections::{BTreeMap, BTreeSet};

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;

/// Default directory of the CA.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// A CA, and the account there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssuer {
    /// URL of the directory.
    pub directory: String,
    /// Address for the CA's messages.
    pub email: Option<String>,
    /// How the CA validates hostnames.
    pub method: ChallengeMethod,
    /// PEM of the CA certificates that the directory's server certificate must chain to. `None`
    /// means the system's CA certificates.
    pub ca_bundle: Option<String>,
}

/// How a CA validates a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeMethod {
    /// A request to port 80 of the hostname.
    Http01,
    /// A TXT record, which a program on the host creates.
    Dns01,
}

/// An HTTP listener that can serve challenges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChallengeParent {
    /// The Gateway or ListenerSet with the listener.
    pub object: ObjectKey,
    /// The Gateway that serves the listener.
    pub gateway: NamespacedName,
    /// Name of the listener.
    pub listener: String,
    /// Port that clients use.
    pub port: u16,
    /// Port that hosts open.
    pub opened: u16,
}

/// A certificate to order and renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The Gateways and ListenerSets whose listeners refer to the Secret, in its namespace.
    pub requesters: BTreeSet<ObjectKey>,
    /// Hostnames that the certificate must have.
    pub hostnames: BTreeSet<String>,
    /// Listeners that can serve challenges. Empty if the method needs none.
    pub parents: BTreeSet<ChallengeParent>,
    /// The CA.
    pub issuer: AcmeIssuer,
    /// True if the Secret exists. A change makes the client look at the Secret again.
    pub exists: bool,
}

/// Requested certificates, keyed by Secret.
pub type CertificateRequests = BTreeMap<NamespacedName, CertificateRequest>;
