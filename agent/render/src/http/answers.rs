//! Responses that Envoy generates itself.

use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, route, route_action::ClusterNotFoundResponseCode,
};
use sesame_proto::refusal;

/// Returns the action that answers every request with a status, or with 500 if Envoy would reject
/// it.
pub(super) fn answer(status: u32) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction {
        // Envoy rejects any other status.
        status: if (200..600).contains(&status) {
            status
        } else {
            refusal::HTTP
        },
        ..Default::default()
    })
}

/// The answer for the share of an invalid backend.
pub(super) struct RefusalAnswer {
    /// Status of a route that answers directly.
    pub(super) status: u32,
    /// Envoy's response code for a cluster that never exists.
    pub(super) not_found: ClusterNotFoundResponseCode,
}

pub(super) const HTTP_REFUSAL: RefusalAnswer = RefusalAnswer {
    status: refusal::HTTP,
    not_found: ClusterNotFoundResponseCode::InternalServerError,
};
pub(super) const UNAVAILABLE: RefusalAnswer = RefusalAnswer {
    status: refusal::UNAVAILABLE,
    not_found: ClusterNotFoundResponseCode::ServiceUnavailable,
};
pub(super) const GRPC_REFUSAL: RefusalAnswer = RefusalAnswer {
    status: refusal::GRPC,
    not_found: ClusterNotFoundResponseCode::ServiceUnavailable,
};
