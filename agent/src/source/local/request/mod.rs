//! Obtains certificates for keys that the agent generates. Generates a key and a PKCS#10 request,
//! and accepts only an answer for that key.
//!
//! `entry` parses the setting, `pkcs10` generates a key and its request, and `store` manages the
//! files: the pair in use, and a key whose request is pending. An operator, a command or a signer
//! in the cluster writes the certificate to one file. A key must never leave the host. A
//! certificate for another key must never be served. A pair must never be dropped before its
//! successor is complete and verified.

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

/// What requests need in addition to their settings.
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
    /// Sets the reason why an object's request is not answered. `None` removes the reason.
    pub(crate) fn tell(&self, object: &str, why: Option<String>) {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => troubles.insert(object.to_owned(), why),
            None => troubles.remove(object),
        };
    }

    /// Returns why an object's request is not answered, or `None` if there is no reason.
    fn of(&self, object: &str) -> Option<String> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(object).cloned()
    }
}

/// A request that has not been answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The request, as PEM.
    pub pem: String,
    /// Path at which the answer is expected.
    pub answer_file: PathBuf,
}

/// The state of a request after an attempt to advance it.
#[derive(Debug, Default)]
pub(super) struct RequestState {
    /// The pair that is in use.
    pub(super) pair: Option<CheckedPair>,
    /// When the pair in use is due for renewal, as a Unix timestamp.
    pub(super) renew_at: Option<i64>,
    /// The request that has not been answered yet.
    pub(super) open: Option<OpenRequest>,
    /// A problem, or an action that someone has to take.
    pub(super) problem: Option<(Severity, String)>,
}
