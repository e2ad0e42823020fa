//! Certificates for keys that the agent generates: a key, a request for it (PKCS#10), and an answer
//! that is accepted only for that key.
//!
//! `entry` is the setting, `pkcs10` makes a key and its request, `store` holds its files: the pair
//! in use, and a key with a pending request. The answerer (an operator, a command or a cluster
//! signer) writes the certificate to one file. Never let a key leave the host, serve a certificate
//! with another's key, or give up a pair before the next one is complete and verified.

mod entry;
mod pkcs10;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sesame_gateway_api::resolve::CheckedPair;

pub use self::entry::{Answerer, CertificateRequest, RequestedUsage};
pub(super) use self::store::step;
use super::super::problem::Severity;
use crate::seal::SealingKeys;

/// Everything that requests need besides their settings.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Keys that seal the requests' keys on disk.
    pub sealing: Arc<SealingKeys>,
    /// Problems of the answering parties.
    pub troubles: Troubles,
}

/// Reasons why requests have no answer yet, by their object.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, String>>>);

impl Troubles {
    /// Records why an object's request has no answer, or clears the reason with `None`.
    pub(crate) fn tell(&self, object: &str, why: Option<String>) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => troubles.insert(object.to_owned(), why),
            None => troubles.remove(object),
        };
    }

    /// Returns why an object's request has no answer.
    fn of(&self, object: &str) -> Option<String> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(object).cloned()
    }
}

/// A request that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The request, in PEM.
    pub pem: String,
    /// Path of the expected answer.
    pub answer_file: PathBuf,
}

/// The state of a request after a step.
#[derive(Debug, Default)]
pub(super) struct RequestState {
    /// The pair in use.
    pub(super) pair: Option<CheckedPair>,
    /// Renewal time, in seconds since 1970.
    pub(super) renew_at: Option<i64>,
    /// The waiting request.
    pub(super) open: Option<OpenRequest>,
    /// A problem, or a pending action.
    pub(super) problem: Option<(Severity, String)>,
}
