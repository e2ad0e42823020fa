//! Elects the replica that writes: the one that holds the Lease. All replicas watch and compute.
//!
//! A holder that cannot renew in time stops writing before another replica may begin. Agents never
//! need a leader.

mod decide;
mod elector;

pub(crate) use self::elector::Elector;
