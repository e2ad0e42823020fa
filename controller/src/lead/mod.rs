//! Elects a leader: only the replica that holds the Lease writes. A holder that cannot renew it in
//! time stops writing before another replica can start.

mod decide;
mod elector;
mod holder;

pub(crate) use self::elector::Elector;
pub(crate) use self::holder::identity;
