//! Expiry of certificates, revocation lists and OCSP staples.
//!
//! Resolution never reads the clock, so callers pass the time and report the warnings. Expired
//! certificates are still served, because clients decide whether to accept them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sesame_proto::keys::KeyPair;
use sesame_proto::pem;
use sesame_proto::schema::TrustBundle;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate_facts::{CertificateFacts, RevocationListFacts};
use crate::ocsp_response::{self, OcspResponse};

/// Time before expiry at which warnings start, in seconds.
const WARNING: i64 = 14 * 24 * 60 * 60;

/// Validity period of an item. Times are Unix timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Object that contains the item, as `Secret/namespace/name` or `ConfigMap/namespace/name`.
    pub name: String,
    /// The item.
    pub of: ExpiryOf,
    /// Start of validity.
    pub not_before: i64,
    /// End of validity.
    pub not_after: i64,
}

/// An item that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpiryOf {
    /// Leaf certificate of a key pair.
    Leaf,
    /// CA certificate in a trust bundle, by subject.
    Authority(String),
    /// Revocation list in a trust bundle, by issuer.
    RevocationList(String),
    /// Stapled OCSP response.
    Staple {
        /// True if the certificate requires a staple.
        demanded: bool,
    },
}

/// Expiries by listener name, grouped by the object that defines the listeners, such as
/// `Gateway/namespace/name`.
pub type ListenerExpiries = BTreeMap<String, BTreeMap<String, Vec<Expiry>>>;

/// Phase in a certificate's lifetime, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpiryPhase {
    /// Valid, and not about to expire.
    Fresh,
    /// Expires within 14 days, or is in the last third of a validity period of less than 42 days.
    ExpiresSoon,
    /// The validity period has not started yet.
    NotYetValid,
    /// The validity period is over.
    Expired,
}

/// A warning about a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The warning, as a sentence.
    pub message: String,
    /// True if clients reject the certificate now.
    pub refused: bool,
}

impl Expiry {
    /// Returns `None` if the leaf certificate is malformed.
    pub fn of(pair: &KeyPair) -> Option<Self> {
        let leaf = pem::read_first::<CertificateDer<'_>>(&pair.certificate_chain).ok()?;
        let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
        Some(Self {
            name: pair.name.clone(),
            of: ExpiryOf::Leaf,
            not_before: leaf.validity().not_before.timestamp(),
            not_after: leaf.validity().not_after.timestamp(),
        })
    }

    /// Returns `None` if the staple is missing, or if the staple or the leaf is malformed.
    pub fn of_staple(pair: &KeyPair) -> Option<Self> {
        let staple = OcspResponse::read(&pair.ocsp_staple).ok()?;
        let leaf = pem::read_first::<CertificateDer<'_>>(&pair.certificate_chain).ok()?;
        let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
        let demanded = ocsp_response::is_demanded_by(&leaf);
        Some(Self {
            name: pair.name.clone(),
            of: ExpiryOf::Staple { demanded },
            not_before: staple.this_update,
            not_after: staple.next_update,
        })
    }

    /// Returns the expiries of the leaf certificate and the staple.
    pub fn of_pair(pair: &KeyPair) -> impl Iterator<Item = Self> {
        Self::of(pair).into_iter().chain(Self::of_staple(pair))
    }

    /// Skips malformed items, and revocation lists without a next update time.
    pub fn of_bundle(bundle: &TrustBundle) -> Vec<Self> {
        let facts = CertificateFacts::from_pem(bundle.pem.as_bytes()).into_iter();
        let authorities = facts.map(|facts| Self {
            name: bundle.name.clone(),
            of: ExpiryOf::Authority(facts.subject),
            not_before: facts.not_before,
            not_after: facts.not_after,
        });
        let lists = RevocationListFacts::from_pem(bundle.crl.as_bytes()).into_iter();
        let lists = lists.filter_map(|facts| {
            Some(Self {
                name: bundle.name.clone(),
                of: ExpiryOf::RevocationList(facts.issuer),
                not_before: facts.this_update,
                not_after: facts.next_update?,
            })
        });
        authorities.chain(lists).collect()
    }

    /// Returns the Unix timestamp from which on warnings are due.
    pub fn warns_from(&self) -> i64 {
        let life = self.not_after.saturating_sub(self.not_before).max(0);
        self.not_after.saturating_sub(WARNING.min(life / 3))
    }

    /// Returns the phase at `now`.
    pub fn phase(&self, now: Timestamp) -> ExpiryPhase {
        let Self {
            name: _,
            of: _,
            not_before,
            not_after,
        } = self;
        let now = now.as_second();
        if now > *not_after {
            ExpiryPhase::Expired
        } else if now < *not_before {
            ExpiryPhase::NotYetValid
        } else if now >= self.warns_from() {
            ExpiryPhase::ExpiresSoon
        } else {
            ExpiryPhase::Fresh
        }
    }

    /// Returns a warning if the item is invalid at `now` or expires soon.
    pub fn warning(&self, now: Timestamp) -> Option<Warning> {
        let name = &self.name;
        // Other CA certificates in the bundle stay valid, so clients may still be accepted.
        let (of, effect, is_refused) = match &self.of {
            ExpiryOf::Leaf => (
                format!("the certificate of {name}"),
                "clients reject it",
                true,
            ),
            ExpiryOf::Authority(subject) => (
                format!("the certificate of authority {subject} in {name}"),
                "certificates that it has signed are rejected",
                false,
            ),
            ExpiryOf::RevocationList(issuer) => (
                format!("the revocation list of {issuer} in {name}"),
                "Envoy rejects all certificates from that authority until the list is renewed",
                true,
            ),
            ExpiryOf::Staple { demanded: false } => (
                format!("the OCSP staple of {name}"),
                "Envoy presents the certificate without it",
                false,
            ),
            ExpiryOf::Staple { demanded: true } => (
                format!("the OCSP staple of {name}"),
                "the certificate requires a staple, so Envoy rejects clients that request one",
                true,
            ),
        };
        let (start, end) = (time(self.not_before), time(self.not_after));
        let (message, refused) = match self.phase(now) {
            ExpiryPhase::Fresh => return None,
            ExpiryPhase::ExpiresSoon => (format!("{of} expires at {end}"), false),
            ExpiryPhase::NotYetValid if matches!(self.of, ExpiryOf::Staple { .. }) => (
                format!(
                    "{of} is not valid before {start}; clients that check this reject the certificate"
                ),
                true,
            ),
            ExpiryPhase::NotYetValid => (
                format!("{of} is not valid before {start}; {effect}"),
                is_refused,
            ),
            ExpiryPhase::Expired => (format!("{of} expired at {end}; {effect}"), is_refused),
        };
        Some(Warning { message, refused })
    }
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    #[test]
    fn expiry_warns_two_weeks_or_one_third_before() {
        for (life, quiet, warned) in [
            (90 * DAY, 75 * DAY, 76 * DAY),
            (6 * DAY, 4 * DAY - 1, 4 * DAY),
        ] {
            let expiry = Expiry {
                name: "Secret/ns/a".to_owned(),
                of: ExpiryOf::Leaf,
                not_before: 1_000,
                not_after: 1_000 + life,
            };
            let at = |age: i64| {
                let now = Timestamp::from_second(1_000 + age).expect("a time");
                expiry.warning(now).map(|warning| warning.refused)
            };
            assert_eq!(at(-1), Some(true));
            assert_eq!(at(0), None);
            assert_eq!(at(quiet), None);
            assert_eq!(at(warned), Some(false));
            assert_eq!(at(life), Some(false));
            assert_eq!(at(life + 1), Some(true));
        }
    }

    #[test]
    fn the_time_is_that_of_the_leaf() {
        let made =
            rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
        let mut pair = KeyPair {
            name: "Secret/ns/a".to_owned(),
            certificate_chain: made.cert.pem().into_bytes(),
            ..KeyPair::default()
        };
        let expiry = Expiry::of(&pair).expect("a certificate");
        assert!(expiry.not_before < expiry.not_after);
        let bundle = TrustBundle {
            name: "ConfigMap/ns/ca".to_owned(),
            pem: made.cert.pem().repeat(2),
            ..TrustBundle::default()
        };
        let [authority, _] = &Expiry::of_bundle(&bundle)[..] else {
            panic!("two authorities");
        };
        assert_eq!(authority.not_after, expiry.not_after);
        let late = Timestamp::from_second(authority.not_after + 1).expect("a time");
        let warning = authority.warning(late).expect("a warning");
        assert!(!warning.refused, "another CA in the bundle may be valid");
        let expected =
            "the certificate of authority CN=rcgen self signed cert in ConfigMap/ns/ca expired";
        assert!(warning.message.starts_with(expected), "{}", warning.message);
        pair.certificate_chain = b"none".to_vec();
        assert_eq!(Expiry::of(&pair), None);
    }
}
