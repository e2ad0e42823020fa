//! Gateway API objects as values, and their resolution into snapshots and statuses.
//!
//! The flow is `api` (types) → `world` (the objects of one moment, which `decode` reads) →
//! `resolve` (a pure function) → snapshots, keys and `status` (conditions). Statements that depend
//! on the time, such as `expiry`, take it as an argument. `certificate_facts` reads certificates
//! for people, and `ocsp_response` the statement of an authority about one. Nothing here opens a
//! file or a socket, reads a clock or draws a random number, so that the same objects give the same
//! bytes on any machine.

pub mod api;
pub mod certificate_facts;
pub mod decode;
pub mod expiry;
pub mod explain;
pub mod ocsp_response;
pub mod resolve;
pub mod status;
pub mod world;
