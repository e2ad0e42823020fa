//! Keys of session tickets: made on this host, rotated on a schedule, and the same for all of its Envoys.
//!
//! They let clients resume sessions after a certificate rotation and after a restart of Envoy,
//! which otherwise forgets them. Keep them private, and only in memory that a reboot clears: they
//! decrypt recorded connections.

mod keys;
mod rotator;

pub(crate) use self::rotator::{TicketRotator, Tickets, TicketsError};
