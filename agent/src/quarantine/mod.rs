//! Quarantine: excludes exactly the pieces of a configuration that Envoy rejects, so that all other
//! pieces keep working.
//!
//! Envoy's rejection rarely shows which piece is at fault. For example, a single invalid regular
//! expression makes Envoy reject a whole route table, and Envoy stops at the first error. The
//! quarantine therefore finds culprits by bisection: it runs `envoy --mode validate` on
//! configurations that contain only some pieces of the snapshot. A culprit is excluded from the
//! snapshot, and remembered by its digest. It is not tried again until it changes. Validation does
//! not bind ports, so port conflicts are read from Envoy's log messages.
//!
//! If Envoy has accepted an earlier version of a rejected key, that version is served instead, so
//! that listeners with this key stay open.
//!
//! `piece`, `exclude`, `isolate`, `accepted_keys`, `affected` and `envoy_log` are pure. `judge`
//! runs Envoy. `adviser` combines these modules for the publishing loop. Never write Envoy's files
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
