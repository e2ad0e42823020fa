//! Reads the rate limits, timeouts and retries in TrafficPolicies.

use sesame_proto::schema::{RateLimit, RateLimitKey, Retry, rate_limit_key};

use super::Timeouts;
use super::service_limits::Services;
use crate::syntax::{durations, limits, names};
use sesame_kinds::api::{
    DefaultRetry, DefaultTimeouts, LimitHeaders, LimitKey, LimitKeyType, LimitMode, LimitPeriod,
    LimitScope, RequestLimit,
};

const MAX_LIMITS: usize = 8;

pub(super) fn read_limits(
    policy: &str,
    specs: &[RequestLimit],
    services: &mut Services<'_>,
) -> Result<Vec<RateLimit>, String> {
    limits::entries("rateLimits", specs.len(), 0..=MAX_LIMITS)?;
    let mut read: Vec<RateLimit> = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        let field = format!("rateLimits[{i}]");
        let name = &spec.name;
        if specs.iter().take(i).any(|earlier| earlier.name == *name) {
            return Err(format!("{field}.name {name:?} is already used"));
        }
        let at_field = |why: String| format!("{field}.{why}");
        let limit = read_limit(policy, spec).map_err(at_field)?;
        if spec.scope == Some(LimitScope::Service) {
            let decided = services.decide(&field, spec, limit);
            read.extend(decided.map_err(at_field)?);
        } else {
            read.push(limit);
        }
    }
    Ok(read)
}

fn read_limit(policy: &str, spec: &RequestLimit) -> Result<RateLimit, String> {
    let RequestLimit {
        name,
        requests,
        per,
        burst,
        keys,
        scope,
        service,
        mode,
        headers,
    } = spec;
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=63).contains(&name.len()) || !name.bytes().all(allowed) {
        return Err(format!(
            "name {name:?}: expected 1 to 63 characters of a-z, 0-9 and '-'"
        ));
    }
    let with_service = *scope == Some(LimitScope::Service);
    if service.is_some() && !with_service {
        return Err("service must not be set without scope Service".to_owned());
    }
    let (requests, per_ms) = if with_service {
        (0, 0)
    } else {
        (read_requests(*requests)?, read_period(per.as_ref())?)
    };
    let burst = burst.unwrap_or_default();
    let Ok(burst) = u32::try_from(burst) else {
        return Err(format!("burst {burst}: expected at least 0"));
    };
    Ok(RateLimit {
        name: format!("{policy}/{name}"),
        requests,
        per_ms,
        burst,
        keys: read_keys(keys)?,
        status: 0,
        response_headers: Vec::new(),
        report_only: read_mode(mode.as_ref())?,
        draft_headers: read_limit_headers(headers.as_ref())?,
        fleet: read_scope(scope.as_ref())?,
        service: None,
    })
}

fn read_requests(requests: Option<i32>) -> Result<u32, String> {
    let requests = requests.ok_or("requests is missing; expected at least 1")?;
    let read = u32::try_from(requests).ok().filter(|it| *it > 0);
    read.ok_or_else(|| format!("requests {requests}: expected at least 1"))
}

fn read_period(per: Option<&LimitPeriod>) -> Result<u64, String> {
    Ok(match per {
        Some(LimitPeriod::Second) => 1_000,
        Some(LimitPeriod::Minute) => 60_000,
        Some(LimitPeriod::Hour) => 3_600_000,
        Some(LimitPeriod::Day) => 86_400_000,
        Some(LimitPeriod::Other(other)) => {
            let known = LimitPeriod::WORDS.join(", ");
            return Err(format!("per {other:?} is unknown; expected {known}"));
        }
        None => {
            let known = LimitPeriod::WORDS.join(", ");
            return Err(format!("per is missing; expected {known}"));
        }
    })
}

fn read_keys(specs: &[LimitKey]) -> Result<Vec<RateLimitKey>, String> {
    limits::entries("keys", specs.len(), 0..=RateLimit::MAX_KEYS)?;
    let mut keys: Vec<RateLimitKey> = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        let kind = read_key(spec).map_err(|why| format!("keys[{i}].{why}"))?;
        let key = RateLimitKey { kind: Some(kind) };
        if keys.contains(&key) {
            return Err(format!("keys[{i}]: an earlier key has the same value"));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn read_key(key: &LimitKey) -> Result<rate_limit_key::Kind, String> {
    let LimitKey { type_, name } = key;
    let named = || {
        let name = name.as_deref().unwrap_or_default();
        names::check_token(format_args!("name"), name)?;
        if name.contains('%') {
            return Err(format!("name {name:?}: expected a name without %"));
        }
        Ok(name.to_owned())
    };
    let unnamed = |kind| match name {
        Some(_) => Err(format!("name must not be set with type {type_}")),
        None => Ok(kind),
    };
    match type_ {
        LimitKeyType::ClientAddress => unnamed(rate_limit_key::Kind::ClientAddress(true)),
        LimitKeyType::Path => unnamed(rate_limit_key::Kind::Path(true)),
        LimitKeyType::Method => unnamed(rate_limit_key::Kind::Method(true)),
        LimitKeyType::Header => {
            let name = named()?.to_ascii_lowercase();
            Ok(rate_limit_key::Kind::RequestHeader(name))
        }
        LimitKeyType::Cookie => named().map(rate_limit_key::Kind::Cookie),
        LimitKeyType::QueryParameter => named().map(rate_limit_key::Kind::QueryParameter),
        LimitKeyType::Other(other) => {
            let known = LimitKeyType::WORDS.join(", ");
            Err(format!("type {other:?} is unknown; expected {known}"))
        }
    }
}

fn read_scope(scope: Option<&LimitScope>) -> Result<bool, String> {
    match scope {
        None | Some(LimitScope::Host | LimitScope::Service) => Ok(false),
        Some(LimitScope::Fleet) => Ok(true),
        Some(LimitScope::Other(other)) => {
            let known = LimitScope::WORDS.join(", ");
            Err(format!("scope {other:?} is unknown; expected {known}"))
        }
    }
}

fn read_mode(mode: Option<&LimitMode>) -> Result<bool, String> {
    match mode {
        None | Some(LimitMode::Enforce) => Ok(false),
        Some(LimitMode::Report) => Ok(true),
        Some(LimitMode::Other(other)) => {
            let known = LimitMode::WORDS.join(", ");
            Err(format!("mode {other:?} is unknown; expected {known}"))
        }
    }
}

fn read_limit_headers(headers: Option<&LimitHeaders>) -> Result<bool, String> {
    match headers {
        None | Some(LimitHeaders::Off) => Ok(false),
        Some(LimitHeaders::DraftVersion03) => Ok(true),
        Some(LimitHeaders::Other(other)) => {
            let known = LimitHeaders::WORDS.join(", ");
            Err(format!("headers {other:?} is unknown; expected {known}"))
        }
    }
}

pub(super) fn read_timeouts(spec: &DefaultTimeouts) -> Result<Timeouts, String> {
    let DefaultTimeouts {
        request,
        backend_request,
        stream_idle,
    } = spec;
    let read = Timeouts {
        request: durations::read("timeouts.request", request.as_deref())?,
        backend: durations::read("timeouts.backendRequest", backend_request.as_deref())?,
        stream_idle: durations::read("timeouts.streamIdle", stream_idle.as_deref())?,
    };
    if let (Some(whole @ 1..), Some(one)) = (read.request, read.backend)
        && one > whole
    {
        return Err(format!(
            "timeouts.backendRequest {:?} is longer than timeouts.request {:?}, which includes it",
            backend_request.as_deref().unwrap_or_default(),
            request.as_deref().unwrap_or_default()
        ));
    }
    Ok(read)
}

pub(super) fn read_retry(spec: &DefaultRetry) -> Result<Retry, String> {
    let DefaultRetry {
        codes,
        attempts,
        backoff,
    } = spec;
    let most = Retry::MAX_ATTEMPTS;
    let attempts = attempts.unwrap_or(1);
    let Some(attempts) = u32::try_from(attempts).ok().filter(|it| *it <= most) else {
        return Err(format!("retry.attempts {attempts}: expected 0 to {most}"));
    };
    limits::entries("retry.codes", codes.len(), 0..=16)?;
    let mut statuses = Vec::with_capacity(codes.len());
    for (i, code) in codes.iter().enumerate() {
        let Ok(status @ 400..=599) = u32::try_from(*code) else {
            return Err(format!("retry.codes[{i}] {code}: expected 400 to 599"));
        };
        statuses.push(status);
    }
    statuses.sort_unstable();
    statuses.dedup();
    Ok(Retry {
        statuses,
        attempts,
        backoff_ms: durations::read("retry.backoff", backoff.as_deref())?.unwrap_or_default(),
        unprocessed_only: true,
        conditions: Vec::new(),
    })
}
