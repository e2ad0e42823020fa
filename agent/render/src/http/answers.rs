//! Answers that Envoy gives by itself.

use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, route, route_action::ClusterNotFoundResponseCode,
};
use sesame_proto::refusal;

/// Returns the action that answers every request with a status, or with 500 if Envoy would not take it.
pub(super) fn answer(status: u32) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction {
        // Envoy refuses any other.
        status: if (200..600).contains(&status) {
            status
        } else {
            refusal::HTTP
        },
        ..Default::default()
    })
}

/// The answer to the share of an invalid backend.
pub(super) struct RefusalAnswer {
    /// Status of a route that answers by itself.
    pub(super) status: u32,
    /// Answer of Envoy's for a cluster that is never there.
    pub(super) not_found: ClusterNotFoundResponseCode,
}

pub(super) const HTTP_REFUSAL: RefusalAnswer = RefusalAnswer {
    status: refusal::HTTP,
    not_found: ClusterNotFoundResponseCode::InternalServerError,
};
pub(super) const GRPC_REFUSAL: RefusalAnswer = RefusalAnswer {
    status: refusal::GRPC,
    not_found: ClusterNotFoundResponseCode::ServiceUnavailable,
};
