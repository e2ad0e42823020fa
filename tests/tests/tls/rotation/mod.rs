//! Server certificates: rotated under load and verified by handshakes. Sessions are resumed
//! throughout.

mod load;
mod many;
mod proofs;
mod shared_tickets;
mod site;
mod staples;
mod tickets;
