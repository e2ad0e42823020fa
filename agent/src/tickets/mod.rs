//! Manages session ticket keys. They are created on this host, rotated regularly, and shared by all
//! Envoys of the host.
//!
//! With these keys, clients can resume sessions after a certificate rotation or a restart of Envoy.
//! The keys decrypt recorded connections, so they must be kept private, and stored only in memory
//! that a reboot clears.

mod keys;
mod rotator;

pub(crate) use self::rotator::{TicketRotator, Tickets, TicketsError};
