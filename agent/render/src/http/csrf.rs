//! Protection against forged requests from other sites.
//!
//! Envoy checks POST, PUT, PATCH and DELETE requests. It compares the host and port of `Origin`, or
//! of `Referer` if `Origin` is missing, with `Host`, and rejects requests that have neither. It
//! ignores schemes.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::extensions::filters::http::csrf::v3::CsrfPolicy;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::Csrf;

use super::composite;
use crate::wrappers;

pub(crate) const FILTER: &str = "csrf";

/// A request must pass all checks, so only origins that all of them accept are accepted.
pub(crate) fn render(checks: &[Csrf]) -> Result<Option<Any>, String> {
    let Some((first, others)) = checks.split_first() else {
        return Ok(None);
    };
    for Csrf {
        name,
        additional_origins,
    } in checks
    {
        let (count, most) = (additional_origins.len(), Csrf::MAX_ORIGINS);
        if count > most {
            return Err(format!(
                "`{name}`: {count} origins; at most {most} are allowed"
            ));
        }
        if let Some(origin) = additional_origins.iter().find(|it| !Csrf::is_origin(it)) {
            return Err(format!("`{name}`: {origin:?} is not an origin"));
        }
    }
    let accepted = |origin: &&String| {
        let mut others = others.iter();
        others.all(|it| it.additional_origins.contains(origin))
    };
    let origins = first.additional_origins.iter().filter(accepted);
    let policy = CsrfPolicy {
        filter_enabled: Some(RuntimeFractionalPercent {
            default_value: wrappers::percent(100),
            ..Default::default()
        }),
        additional_origins: origins.map(wrappers::exact).collect(),
        ..Default::default()
    };
    let filter = composite::inline("envoy.filters.http.csrf", pack_any(policy));
    Ok(Some(filter))
}
