//! Quarantine: pieces that Envoy refuses are left out alone, so that they harm nothing else.
//!
//! A refusal says little: one bad regular expression refuses a whole route table, and Envoy stops at the first
//! error. So the culprits are searched for by halves, with `envoy --mode validate` as the judge of configurations
//! that hold some pieces of the snapshot and nothing else. What is found is excluded from the snapshot and
//! remembered by its digest: it is not tried again until it changes. Validation binds no port, so conflicts of
//! ports are taken from Envoy's own words.
//!
//! A key is not left out if Envoy accepted one of its name before: that is put back in its place, so that its listener
//! goes on.
//!
//! `piece`, `exclude`, `isolate`, `accepted_keys`, `affected` and `envoy_log` are pure; `judge` runs Envoy; `adviser` ties
//! them together for the publishing loop. Nothing here ever writes a file for Envoy: that is `apply`'s.

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
pub use memory::{Culprit, Culprits};
pub use piece::{Digest, Piece, digests};
pub use search::{Search, SearchEnd, SearchLimits};
pub use target::{Configuration, Reduced};
pub use unbound::{Unbound, UnboundSocket};
