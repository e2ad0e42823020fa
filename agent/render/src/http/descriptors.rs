//! Descriptor entries for rate limit services.

use std::borrow::Cow;

use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::rate_limit::action::{
    ActionSpecifier, HeaderValueMatch, RequestHeaders,
};
use sesame_proto::schema::rate_limit_key::Kind;
use sesame_proto::schema::{
    RateLimit, RateLimitCondition, RateLimitEntry, RateLimitHeader, RateLimitKey, StringMatch,
    string_match,
};

use super::{headers, matches};
use crate::wrappers;

/// Returns the entry's key, which services' configurations contain.
pub(crate) fn name(RateLimitKey { kind }: &RateLimitKey) -> Cow<'_, str> {
    match kind {
        Some(Kind::RequestHeader(name)) => format!("header:{name}").into(),
        Some(Kind::QueryParameter(name)) => format!("query_parameter:{name}").into(),
        Some(Kind::Cookie(name)) => format!("cookie:{name}").into(),
        Some(Kind::Path(_)) => "path".into(),
        Some(Kind::Method(_)) => "method".into(),
        // These have their own keys.
        Some(Kind::ClientAddress(_) | Kind::Entry(_) | Kind::Header(_) | Kind::Condition(_))
        | None => "".into(),
    }
}

/// Envoy may format the text, and it aborts if it cannot parse a format string.
pub(crate) fn check_text(what: &str, text: &str) -> Result<(), String> {
    let most = RateLimit::MAX_ENTRY_BYTES;
    if text.is_empty() || text.len() > most || text.contains('%') {
        return Err(format!(
            "descriptor {what} `{text}`: expected 1 to {most} bytes without %"
        ));
    }
    Ok(())
}

pub(crate) fn check_entry(RateLimitEntry { key, value }: &RateLimitEntry) -> Result<(), String> {
    check_text("key", key)?;
    check_text("value", value)
}

pub(crate) fn check_condition(condition: &RateLimitCondition) -> Result<(), String> {
    let RateLimitCondition {
        entry,
        headers,
        inverted: _,
    } = condition;
    check_entry(
        entry
            .as_ref()
            .ok_or("a descriptor condition has no entry")?,
    )?;
    // Envoy requires a header.
    if headers.is_empty() {
        return Err("a descriptor condition has no headers".to_owned());
    }
    headers.iter().try_for_each(|it| matcher(it).map(drop))
}

fn matcher(StringMatch { name, kind }: &StringMatch) -> Result<HeaderMatcher, String> {
    headers::check_name(name).map_err(|why| format!("header `{name}`: {why}"))?;
    // Envoy evaluates conditions for every request, so expressions are not worth their cost.
    if matches!(kind, Some(string_match::Kind::Regex(_))) {
        return Err(format!(
            "header `{name}`: descriptor conditions must not contain regular expressions"
        ));
    }
    matches::header_match(name, kind.as_ref())
}

pub(crate) fn of_header(RateLimitHeader { key, name }: &RateLimitHeader) -> ActionSpecifier {
    ActionSpecifier::RequestHeaders(RequestHeaders {
        header_name: name.clone(),
        descriptor_key: key.clone(),
        ..Default::default()
    })
}

pub(crate) fn of_condition(condition: &RateLimitCondition) -> ActionSpecifier {
    let RateLimitCondition {
        entry,
        headers,
        inverted,
    } = condition;
    let RateLimitEntry { key, value } = entry.clone().unwrap_or_default();
    // The caller has checked the condition.
    let headers = headers.iter().filter_map(|it| matcher(it).ok());
    ActionSpecifier::HeaderValueMatch(HeaderValueMatch {
        descriptor_key: key,
        descriptor_value: value,
        expect_match: wrappers::boolean(!inverted),
        headers: headers.collect(),
        ..Default::default()
    })
}
