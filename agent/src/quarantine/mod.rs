//! Quarantine: what Envoy refuses is left out alone, so that it harms nothing else.
//!
//! A refusal says little: one bad regular expression refuses a whole route table, and Envoy stops at the first
//! error. So the culprits are searched for by halves, with `envoy --mode validate` as the judge of configurations
//! that hold some pieces of the snapshot and nothing else. What is found is excluded from the snapshot and
//! remembered by its digest: it is not tried again until it changes. Validation binds no port, so conflicts of
//! ports are taken from Envoy's own words.
//!
//! `piece`, `exclude`, `alone`, `affected` and `words` are pure; `judge` runs Envoy; `publish` ties them to the
//! transaction. Nothing here ever writes a file for Envoy: that is `apply`'s.

mod affected;
mod alone;
mod candidate;
mod exclude;
mod judge;
mod memory;
mod piece;
mod publish;
mod search;
mod sockets;
mod words;

#[cfg(test)]
mod tests;

pub use affected::{Affected, AffectedRoute, Refused, affected};
pub use candidate::{Candidate, Kept, Published, Served};
pub use exclude::exclude;
pub use judge::{EnvoyJudge, Judge, NoVerdict, Trial};
pub use memory::{Culprit, Culprits};
pub use piece::{Digest, Piece, digests};
pub use publish::Quarantine;
pub use search::{Limits, Search, SearchEnd};
pub use sockets::{Unbound, UnboundSocket, tcp_addresses};
