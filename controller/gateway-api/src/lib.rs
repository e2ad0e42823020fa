//! Gateway API objects as values, and their resolution into snapshots and statuses.
//!
//! The flow is `api` (types and decoding) → `world` (the objects of one moment) → `resolve` (a pure function) → snapshots,
//! keys and conditions. Nothing here opens a file or a socket, reads a clock or draws a random number, so that the same
//! objects give the same bytes on any machine.

pub mod api;
pub mod decode;
pub mod expiry;
pub mod resolve;
pub mod status;
pub mod world;
