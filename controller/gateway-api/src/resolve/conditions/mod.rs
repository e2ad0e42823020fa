//! Conditions of Gateways, listeners, routes and policies, made from what was checked.
//!
//! Nothing is decided here. Conditions that need a clock, such as the expiry of a certificate, are not made here: see
//! `crate::expiry`.

pub(crate) mod gateways;
pub(crate) mod listener_sets;
mod listeners;
pub(crate) mod policies;
pub(crate) mod routes;

/// Message of the condition Programmed until a host reports.
const WAITING: &str = "waiting for an agent to report";
