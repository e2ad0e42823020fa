//! The report of the keeper.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;

/// State of all requested certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeState {
    /// The certificates, by Secret.
    pub certificates: BTreeMap<NamespacedName, CertificateState>,
    /// Number of orders since the process started.
    pub orders: u64,
    /// Number of failed orders since the process started.
    pub failures: u64,
}

/// State of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// The Gateways and ListenerSets that requested the certificate.
    pub requesters: BTreeSet<ObjectKey>,
    /// When the certificate expires, if there is one.
    pub expires: Option<Timestamp>,
    /// Why no certificate was ordered, with consequence and remedy.
    pub problem: Option<String>,
}
