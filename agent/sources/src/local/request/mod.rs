//! Obtains certificates for keys that the agent generates.
//!
//! An operator, a command or a signer in the cluster answers the PKCS#10 request. A key never
//! leaves the host, and a certificate for another key is never served. A pair stays in use until
//! its successor is complete and verified.

mod entry;
mod pkcs10;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sesame_resolver::CheckedPair;

pub use self::entry::{Answerer, CertificateRequest, RequestedUsage};
pub(super) use self::store::step;
use super::super::problem::Severity;
use crate::seal::SealingKeys;

/// Context that all requests share.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Keys that seal private keys on disk.
    pub sealing: Arc<SealingKeys>,
    /// Why requests are not answered.
    pub troubles: Troubles,
}

/// Why requests are not answered, by the object that the certificate replaces.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, String>>>);

impl Troubles {
    /// `None` removes the reason.
    pub fn set(&self, object: &str, why: Option<String>) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => troubles.insert(object.to_owned(), why),
            None => troubles.remove(object),
        };
    }

    fn get(&self, object: &str) -> Option<String> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(object).cloned()
    }
}

/// An unanswered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The request as PEM.
    pub pem: String,
    /// Path of the expected answer.
    pub answer_file: PathBuf,
}

#[derive(Debug, Default)]
pub(super) struct RequestState {
    pub(super) pair: Option<CheckedPair>,
    /// Unix timestamp.
    pub(super) renew_at: Option<i64>,
    pub(super) open: Option<OpenRequest>,
    /// A problem, or an action that an operator must take.
    pub(super) problem: Option<(Severity, String)>,
}
