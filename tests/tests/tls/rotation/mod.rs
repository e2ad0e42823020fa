//! Server certificates: rotated under load, verified by handshakes, and sessions resumed
//! throughout.

mod load;
mod many;
mod proofs;
mod shared_tickets;
mod site;
mod staples;
mod tickets;
