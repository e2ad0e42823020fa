//! Certificates by ACME (RFC 8555): which ones to order, when, and how challenges are served.
//!
//! Pure: callers pass the time in, and talk to the CA. A challenge is an ordinary HTTPRoute with a
//! RouteFilter, so no other crate knows about challenges.

mod challenges;
mod issued;
mod plan;
mod requests;

pub use self::challenges::{Challenge, ChallengeError, ChallengeObject, MAX_PARENTS, WELL_KNOWN};
pub use self::issued::{IssuedError, IssuedFacts, IssuedPair, MAX_CHAIN_BYTES, issued_digest};
pub use self::plan::{Attempts, Failure, HeldCertificate, Pace, Plan, plan, renewal_time};
pub use self::requests::{
    AcmeIssuer, CertificateRequest, CertificateRequests, ChallengeMethod, ChallengeParent,
    ExternalAccount, LETS_ENCRYPT, MacKey,
};

/// Annotation of a Gateway that requests certificates, and label on all objects that Sesame
/// creates for this purpose.
pub const ACME_KEY: &str = "projectsesame.io/acme";
/// Annotation of an issued Secret: the directory of the CA that issued the certificate.
pub const DIRECTORY_ANNOTATION: &str = "projectsesame.io/acme-directory";
/// Annotation of an issued Secret: the [`issued_digest`] of its name and chain.
pub const DIGEST_ANNOTATION: &str = "projectsesame.io/acme-digest";
