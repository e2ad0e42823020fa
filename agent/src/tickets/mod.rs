//! Manages session ticket keys, which are created on this host, rotated on a schedule, and shared
//! by all of the host's Envoys.
//!
//! With these keys, clients can resume sessions after a certificate rotation or a restart of Envoy.
//! Keep the keys private, and only in memory that a reboot clears, because they decrypt recorded
//! connections.

mod keys;
mod rotator;

pub(crate) use self::rotator::{TicketRotator, Tickets, TicketsError};
