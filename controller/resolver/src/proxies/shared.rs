//! Reads parts of HTTPProxies for `convert` as resolution does.

use sesame_proto::schema::path_match::Kind;
use sesame_proto::schema::{Forward, Retry, StringMatch};

use super::conditions::Inherited;
use super::forwarding;
use crate::routes::matches::RouteMatch;
use crate::syntax::durations;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{ProxyCondition, ProxyRetry, ProxyTimeouts};

/// Conditions on requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyMatch {
    /// Path.
    pub path: Kind,
    /// Headers.
    pub headers: Vec<StringMatch>,
    /// Query parameters.
    pub query_params: Vec<StringMatch>,
}

/// Merges the conditions of a route and of the includes above it, outermost first.
pub fn route_match(
    includes: &[Vec<ProxyCondition>],
    route: &[ProxyCondition],
) -> Result<ProxyMatch, String> {
    let mut regexes = Regexes::default();
    let mut inherited = Inherited::default();
    for conditions in includes {
        let below = inherited.include(conditions, &mut regexes);
        inherited = below.map_err(|(_, why)| why)?;
    }
    let found = inherited.route(route, &mut regexes);
    let RouteMatch {
        path,
        headers,
        query_params,
        ..
    } = found.map_err(|(_, why)| why)?;
    Ok(ProxyMatch {
        path,
        headers,
        query_params,
    })
}

/// Timeouts of a route in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTimeouts {
    /// For the whole response; 0 for none.
    pub request: u64,
    /// Without data; 0 for none, and `None` for the Gateway's setting.
    pub idle: Option<u64>,
}

/// Reads `timeoutPolicy` with Contour's defaults.
pub fn timeouts(spec: Option<&ProxyTimeouts>) -> Result<ReadTimeouts, String> {
    let mut forward = Forward::default();
    forwarding::timeouts(spec, &mut forward).map_err(|(_, why)| why)?;
    Ok(ReadTimeouts {
        request: forward.request_timeout_ms,
        idle: forward.stream_idle_timeout_ms,
    })
}

/// Reads `retryPolicy`. Returns the retries, the timeout for an attempt in milliseconds (0 for
/// none), and warnings about ignored values.
pub fn retries(spec: &ProxyRetry) -> (Option<Retry>, u64, Vec<String>) {
    let (mut forward, mut warnings) = (Forward::default(), Vec::new());
    forwarding::retries(Some(spec), &mut forward, &mut warnings);
    let warnings = warnings.into_iter().map(|(_, why)| why);
    let retry = forward.retry.map(|retry| *retry);
    (retry, forward.backend_timeout_ms, warnings.collect())
}

/// Returns the milliseconds of a duration.
pub fn duration(text: &str) -> Result<u64, String> {
    durations::of_go(text)
}
