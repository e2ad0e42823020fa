//! Kubernetes objects as values: their types, their decoding, the [`world`] of all objects, and their
//! [`status`]es.
//!
//! This crate is pure: it opens no file or socket, reads no clock and generates no random numbers.
//! Modules that depend on the time take it as an argument.

#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod api;
pub mod certificate_facts;
pub mod decode;
pub mod expiry;
pub mod ocsp_response;
pub mod status;
pub mod world;
