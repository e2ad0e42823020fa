//! Obtains certificates for keys that the agent generates: creates a key and a PKCS#10 request for
//! it, and accepts an answer only for that key.
//!
//! `entry` parses the setting, `pkcs10` generates a key and its request, and `store` manages the
//! files: the pair in use, and a key with a pending request. The answerer (an operator, a command
//! or a cluster signer) writes the certificate to one file. Never let a key leave the host, or
//! serve a certificate with a different key. Never drop a pair before the next one is complete and
//! verified.

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

/// Everything that requests need in addition to their settings.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Keys that seal private keys on disk.
    pub sealing: Arc<SealingKeys>,
    /// Reasons why requests are not answered.
    pub troubles: Troubles,
}

/// Reasons why requests are not answered, by object.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, String>>>);

impl Troubles {
    /// Records why an object's request is not answered, or clears the reason with `None`.
    pub(crate) fn tell(&self, object: &str, why: Option<String>) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => troubles.insert(object.to_owned(), why),
            None => troubles.remove(object),
        };
    }

    /// Returns why an object's request is not answered.
    fn of(&self, object: &str) -> Option<String> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(object).cloned()
    }
}

/// A request that is waiting for an answer.
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
    /// Renewal time, as a Unix timestamp.
    pub(super) renew_at: Option<i64>,
    /// The waiting request.
    pub(super) open: Option<OpenRequest>,
    /// A problem, or a pending action.
    pub(super) problem: Option<(Severity, String)>,
}
