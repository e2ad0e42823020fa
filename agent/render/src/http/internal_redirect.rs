//! Redirects from backends that Envoy follows itself.

use envoy_types::pb::envoy::config::route::v3::InternalRedirectPolicy;
use envoy_types::pb::envoy::extensions::internal_redirect::previous_routes::v3::PreviousRoutesConfig;
use envoy_types::pb::envoy::extensions::internal_redirect::safe_cross_scheme::v3::SafeCrossSchemeConfig;
use envoy_types::util::pack_any;
use sesame_proto::schema::InternalRedirect;
use sesame_proto::schema::internal_redirect::CrossScheme;

use crate::wrappers;

/// Redirects with an unknown status or scheme are not followed.
pub(crate) fn render(policy: &InternalRedirect) -> InternalRedirectPolicy {
    let InternalRedirect {
        max,
        statuses,
        cross_scheme,
        denies_repeated_route,
    } = policy;
    let mut predicates = Vec::new();
    let cross_scheme = CrossScheme::try_from(*cross_scheme).unwrap_or_default();
    if cross_scheme == CrossScheme::SafeOnly {
        let name = "envoy.internal_redirect_predicates.safe_cross_scheme";
        let config = pack_any(SafeCrossSchemeConfig::default());
        predicates.push(wrappers::extension(name, config));
    }
    if *denies_repeated_route {
        let name = "envoy.internal_redirect_predicates.previous_routes";
        let config = pack_any(PreviousRoutesConfig::default());
        predicates.push(wrappers::extension(name, config));
    }
    let mut followed: Vec<u32> = statuses
        .iter()
        .copied()
        .filter(|status| InternalRedirect::STATUSES.contains(status))
        .collect();
    followed.sort_unstable();
    // Envoy accepts at most five statuses.
    followed.dedup();
    InternalRedirectPolicy {
        max_internal_redirects: wrappers::uint32((*max).clamp(1, InternalRedirect::MAX)),
        redirect_response_codes: followed,
        predicates,
        allow_cross_scheme_redirect: cross_scheme != CrossScheme::Never,
        ..Default::default()
    }
}
