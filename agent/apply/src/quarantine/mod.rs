//! Quarantine: excludes exactly the pieces that Envoy rejects, and keeps all others working.
//!
//! Envoy stops at the first error, and its message rarely identifies the faulty piece. Bisection
//! with `envoy --mode validate` finds it. A culprit is not tried again until its digest changes.
//! Validation does not bind ports, so port conflicts are read from Envoy's log.
//!
//! Never write Envoy's files here: `apply` does that. Only `judge` runs Envoy, and `adviser`
//! combines the modules for the publishing loop.

mod accepted_keys;
mod adviser;
mod affected;
mod envoy_log;
mod exclude;
mod isolate;
mod judge;
mod memory;
mod piece;
mod search;
mod target;
mod unbound;

#[cfg(test)]
mod tests;

pub use accepted_keys::AcceptedKeys;
pub use adviser::{Advice, Quarantine};
pub use affected::{Affected, AffectedRoute, Refused, affected};
pub(crate) use envoy_log::is_file_read_failure;
pub use exclude::exclude;
pub use judge::{EnvoyJudge, Judge, NoVerdict, ValidationScope};
pub use memory::{Culprit, Culprits, MatchVerdict};
pub use piece::{Digest, Piece, digests};
pub use search::{Search, SearchEnd, SearchLimits};
pub use target::{Configuration, Reduced};
pub use unbound::{Unbound, UnboundSocket};
