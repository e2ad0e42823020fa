//! Quarantine: excludes exactly the pieces that Envoy rejects, so that nothing else is affected.
//!
//! A rejection reveals little: one bad regular expression rejects a whole route table, and Envoy
//! stops at the first error. Culprits are therefore found by bisection, with `envoy --mode
//! validate` as the judge of configurations that contain a few pieces of the snapshot. A culprit is
//! excluded from the snapshot and remembered by its digest. It is not tried again until it changes.
//! Validation does not bind ports, so port conflicts are read from Envoy's message.
//!
//! A key is not excluded if Envoy accepted an earlier version of it. That version replaces it, so
//! that its listener keeps serving.
//!
//! `piece`, `exclude`, `isolate`, `accepted_keys`, `affected` and `envoy_log` are pure. `judge`
//! runs Envoy, and `adviser` combines the modules for the publishing loop. Never write Envoy files
//! here: `apply` does that.

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
pub(crate) use envoy_log::let_down_by_host;
pub use exclude::exclude;
pub use judge::{EnvoyJudge, Judge, NoVerdict, Trial};
pub use memory::{Culprit, Culprits, MatchVerdict};
pub use piece::{Digest, Piece, digests};
pub use search::{Search, SearchEnd, SearchLimits};
pub use target::{Configuration, Reduced};
pub use unbound::{Unbound, UnboundSocket};
