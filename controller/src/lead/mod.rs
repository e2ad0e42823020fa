//! Elects a leader: only the replica that holds the Lease writes. All replicas watch and compute.
//!
//! A holder that cannot renew the Lease in time stops writing before another replica can start.
//! Agents keep working without a leader.

mod decide;
mod elector;

pub(crate) use self::elector::Elector;
