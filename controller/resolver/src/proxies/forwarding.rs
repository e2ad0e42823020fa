//! Timeouts, retries and internal redirects for requests to Services.

use sesame_proto::schema::internal_redirect::CrossScheme;
use sesame_proto::schema::{Forward, InternalRedirect, Retry};

use super::rules::RouteFault;
use crate::ingresses::contour::{add_condition, attempts};
use crate::syntax::{durations, limits};
use sesame_kinds::api::{ProxyInternalRedirect, ProxyRetry, ProxyTimeouts};

/// Maximum number of retry conditions per route. Envoy defines fewer.
const MAX_RETRY_CONDITIONS: usize = 32;

/// Contour's default response timeout, in milliseconds.
const RESPONSE_MS: u64 = 15_000;

pub(super) fn timeouts(
    spec: Option<&ProxyTimeouts>,
    forward: &mut Forward,
) -> Result<(), RouteFault> {
    let Some(ProxyTimeouts {
        response,
        idle,
        idle_connection: _,
    }) = spec
    else {
        forward.request_timeout_ms = RESPONSE_MS;
        return Ok(());
    };
    match timeout("response", response)? {
        Timeout::Default => forward.request_timeout_ms = RESPONSE_MS,
        Timeout::Disabled => forward.request_timeout_disabled = true,
        Timeout::Milliseconds(timeout) => forward.request_timeout_ms = timeout,
    }
    forward.stream_idle_timeout_ms = match timeout("idle", idle)? {
        Timeout::Default => None,
        Timeout::Disabled => Some(0),
        Timeout::Milliseconds(timeout) => Some(timeout),
    };
    Ok(())
}

enum Timeout {
    Default,
    Disabled,
    Milliseconds(u64),
}

fn timeout(field: &str, text: &str) -> Result<Timeout, RouteFault> {
    let invalid = |why| {
        (
            ("RouteError", "TimeoutPolicyNotValid"),
            format!("timeoutPolicy.{field}: {why}"),
        )
    };
    Ok(match text {
        "" => Timeout::Default,
        "infinity" | "infinite" => Timeout::Disabled,
        text => match durations::of_go(text).map_err(invalid)? {
            0 => Timeout::Default,
            timeout => Timeout::Milliseconds(timeout),
        },
    })
}

pub(super) fn internal_redirect(
    policy: &ProxyInternalRedirect,
) -> Result<InternalRedirect, String> {
    let ProxyInternalRedirect {
        max_internal_redirects,
        redirect_response_codes,
        allow_cross_scheme_redirect,
        deny_repeated_route_redirect,
    } = policy;
    let max = u32::try_from(*max_internal_redirects);
    let Ok(max @ 0..=InternalRedirect::MAX) = max else {
        return Err(format!(
            "maxInternalRedirects {max_internal_redirects}: expected 0 to {}",
            InternalRedirect::MAX
        ));
    };
    let known = InternalRedirect::STATUSES;
    limits::entries(
        "redirectResponseCodes",
        redirect_response_codes.len(),
        0..=known.len(),
    )?;
    let mut statuses = Vec::new();
    for code in redirect_response_codes {
        match u32::try_from(*code) {
            Ok(status) if known.contains(&status) => statuses.push(status),
            _ => {
                return Err(format!(
                    "redirectResponseCodes {code}: expected one of {known:?}"
                ));
            }
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    let cross_scheme = match allow_cross_scheme_redirect.as_str() {
        "" | "Never" => CrossScheme::Never,
        "Always" => CrossScheme::Always,
        "SafeOnly" => CrossScheme::SafeOnly,
        other => {
            return Err(format!(
                "allowCrossSchemeRedirect {other:?}: expected Always, Never or SafeOnly"
            ));
        }
    };
    Ok(InternalRedirect {
        max,
        statuses,
        cross_scheme: cross_scheme.into(),
        denies_repeated_route: *deny_repeated_route_redirect,
    })
}

pub(super) fn retries(
    spec: Option<&ProxyRetry>,
    forward: &mut Forward,
    warnings: &mut Vec<RouteFault>,
) {
    let Some(ProxyRetry {
        number,
        per_try_timeout,
        retry_on,
        retriable_status_codes,
    }) = spec
    else {
        return;
    };
    let mut ignored = |what: String| warnings.push((("SpecError", "IgnoredField"), what));
    let mut retry = Retry {
        attempts: attempts(*number),
        unprocessed_only: true,
        ..Retry::default()
    };
    for code in retriable_status_codes.iter().take(MAX_RETRY_CONDITIONS) {
        match u32::try_from(*code) {
            Ok(status @ 100..600) => retry.statuses.push(status),
            _ => ignored(format!(
                "retryPolicy.retriableStatusCodes {code} has no effect; expected 100 to 599"
            )),
        }
    }
    retry.statuses.sort_unstable();
    retry.statuses.dedup();
    let default = ["5xx".to_owned()];
    let conditions = if retry_on.is_empty() {
        &default
    } else {
        retry_on.as_slice()
    };
    for condition in conditions.iter().take(MAX_RETRY_CONDITIONS) {
        if let Err(why) = add_condition(&mut retry, condition) {
            ignored(format!(
                "retryPolicy.retryOn {condition:?} has no effect: {why}"
            ));
        }
    }
    if !retry.statuses.is_empty() && !retry_on.iter().any(|it| it == "retriable-status-codes") {
        ignored(
            "retryPolicy.retriableStatusCodes has no effect without retriable-status-codes in \
             retryOn"
                .to_owned(),
        );
    }
    if !per_try_timeout.is_empty() {
        match durations::of_go(per_try_timeout) {
            Ok(timeout) => forward.backend_timeout_ms = timeout,
            Err(why) => ignored(format!("retryPolicy.perTryTimeout has no effect: {why}")),
        }
    }
    forward.retry = Some(Box::new(retry));
}
