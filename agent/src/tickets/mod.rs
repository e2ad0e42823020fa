//! Keys of session tickets: made on this host, rotated on a schedule, and the same for all of its Envoys.
//!
//! With them clients resume their sessions after a certificate was rotated and after a restart of Envoy, which else forgets them
//! all. They must never be where others can read them, or where a reboot leaves them: who has them reads what was recorded.

mod keys;
mod rotator;

pub(crate) use self::rotator::{TicketRotator, Tickets, TicketsError};
