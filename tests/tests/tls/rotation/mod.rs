//! Server certificates are rotated under load, and verified by handshakes. Clients can always
//! resume their sessions.

mod load;
mod many;
mod proofs;
mod shared_tickets;
mod site;
mod staples;
mod tickets;
