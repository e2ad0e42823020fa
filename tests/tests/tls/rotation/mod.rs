//! Certificates of servers that change: rotated under load, proven by handshakes, and sessions that are resumed all the while.

mod load;
mod many;
mod proofs;
mod shared_tickets;
mod site;
mod staples;
mod tickets;
