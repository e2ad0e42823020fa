//! Session ticket keys, which all Envoy processes on a host share.
//!
//! Clients can resume sessions after a certificate rotation or a restart of Envoy. The keys decrypt
//! recorded connections, so keep them in memory that a reboot clears.

mod keys;
mod rotator;

pub use self::rotator::{TicketRotator, Tickets, TicketsError};
