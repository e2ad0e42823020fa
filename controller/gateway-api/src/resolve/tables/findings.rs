//! Findings about routes that come out while tables are built, and that authors are told.

use super::displaced::Displaced;
use super::shadowed::Shadowed;

/// Findings about the routes of all Gateways.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Matches that no request reaches.
    pub(crate) shadowed: Shadowed,
    /// Requests and connections that routes lose to others.
    pub(crate) displaced: Displaced,
}
