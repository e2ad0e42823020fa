//! Server certificate rotation under load. Clients can always resume their sessions.

mod load;
mod many;
mod proofs;
mod shared_tickets;
mod site;
mod staples;
mod tickets;
