//! Direct responses, which Envoy generates without a backend.

use envoy_types::pb::envoy::config::core::v3::{
    SubstitutionFormatString, substitution_format_string::Format,
};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, route, route_action::ClusterNotFoundResponseCode,
};
use sesame_proto::refusal;
use sesame_proto::schema::DirectResponse;

use super::headers;
use crate::wrappers;

pub(super) fn answer(status: u32) -> route::Action {
    route::Action::DirectResponse(DirectResponseAction {
        // Envoy rejects any status outside this range.
        status: if (200..600).contains(&status) {
            status
        } else {
            refusal::HTTP
        },
        ..Default::default()
    })
}

/// Returns an error if the body is too long, because Envoy would reject the whole route table.
pub(super) fn direct(response: &DirectResponse) -> Result<route::Action, String> {
    let DirectResponse {
        status,
        body,
        content_type,
    } = response;
    if body.len() > DirectResponse::MAX_BODY {
        return Err(format!(
            "the body has {} bytes; at most {} are allowed",
            body.len(),
            DirectResponse::MAX_BODY
        ));
    }
    let mut action = answer(*status);
    if let route::Action::DirectResponse(response) = &mut action {
        response.body = (!body.is_empty()).then(|| wrappers::text(body));
        if !content_type.is_empty() {
            headers::check_value(content_type).map_err(|why| format!("content type: {why}"))?;
            let body = wrappers::text("%LOCAL_REPLY_BODY%");
            // Envoy overwrites a `content-type` header with `text/plain`.
            response.body_format = Some(SubstitutionFormatString {
                content_type: content_type.clone(),
                format: Some(Format::TextFormatSource(body)),
                ..Default::default()
            });
        }
    }
    Ok(action)
}

pub(super) struct RefusalAnswer {
    pub(super) status: u32,
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
