//! Values that rate limits count separately.
//!
//! Clients choose most values. Therefore, no request may escape a limit by omitting a value, and
//! no value may take much memory:
//! - Envoy does not count requests whose value is empty, so each value gets a prefix.
//! - Envoy remembers values, so only their first bytes count.
//! - Clients can invent methods, so all unknown methods share one value.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::rate_limit::Action;
use envoy_types::pb::envoy::config::route::v3::rate_limit::action::{
    ActionSpecifier, GenericKey, HeaderValueMatch, RemoteAddress, RemoteAddressMatch,
};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::{
    Config,
    config::{KeyValuePair, Rule},
};
use envoy_types::pb::envoy::r#type::matcher::v3::AddressMatcher;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{RateLimit, RateLimitKey, rate_limit_key::Kind};

use super::{descriptors, headers, matches};
use crate::layout::file_name;
use crate::wrappers;

/// Filter that reads cookies, because Envoy's format strings cannot.
pub(crate) const COOKIES: &str = "rate_limit_cookies";

const LIMIT: &str = "limit";
const CLIENT_ADDRESS: &str = "remote_address";
const VALUE: &str = "value";

/// The methods that an HTTPRoute can match.
const METHODS: &str = "GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH";

/// Number of a value's bytes that count.
const COUNTED_BYTES: usize = 512;

pub(crate) fn check(limit: &RateLimit) -> Result<(), String> {
    let RateLimit { keys, service, .. } = limit;
    if keys.len() > limit.max_keys() {
        return Err(format!("at most {} keys are allowed", limit.max_keys()));
    }
    let is_service_key = |RateLimitKey { kind }: &RateLimitKey| {
        matches!(
            kind,
            Some(Kind::Entry(_) | Kind::Header(_) | Kind::Condition(_))
        )
    };
    if service.is_none() && keys.iter().any(is_service_key) {
        return Err("a key needs a service".to_owned());
    }
    let most = RateLimit::MAX_SERVICE_KEY_BYTES;
    if service.is_some() && RateLimit::size_of_keys(keys) > most {
        return Err(format!("its keys are larger than {most} bytes"));
    }
    keys.iter().try_for_each(check_key)
}

fn check_key(RateLimitKey { kind }: &RateLimitKey) -> Result<(), String> {
    let (what, name) = match kind {
        Some(Kind::ClientAddress(_) | Kind::Path(_) | Kind::Method(_)) => return Ok(()),
        Some(Kind::RequestHeader(name)) => ("header", name),
        Some(Kind::QueryParameter(name)) => ("query parameter", name),
        Some(Kind::Cookie(name)) => ("cookie", name),
        Some(Kind::Entry(entry)) => return descriptors::check_entry(entry),
        Some(Kind::Header(header)) => {
            descriptors::check_text("key", &header.key)?;
            ("header", &header.name)
        }
        Some(Kind::Condition(condition)) => return descriptors::check_condition(condition),
        None => return Err("a key has no kind".to_owned()),
    };
    let at = |why: &str| format!("key of {what} `{name}`: {why}");
    headers::check_name(name).map_err(at)?;
    let most = RateLimit::MAX_KEY_NAME;
    // Envoy aborts if it cannot parse a format string.
    if name.len() > most || name.contains('%') {
        return Err(at(&format!(
            "the name is longer than {most} bytes or contains %"
        )));
    }
    Ok(())
}

/// For an entry without a value, Envoy creates one bucket per value in requests.
pub(crate) fn entries(limit: &RateLimit) -> Vec<Entry> {
    let entry = |key: &str, value: String| Entry {
        key: key.to_owned(),
        value,
    };
    let keys = limit.keys.iter().map(|RateLimitKey { kind }| match kind {
        Some(Kind::ClientAddress(_)) => entry(CLIENT_ADDRESS, String::new()),
        _ => entry(VALUE, String::new()),
    });
    let own = entry(LIMIT, file_name(&limit.name));
    std::iter::once(own).chain(keys).collect()
}

/// Returns alternative lists of actions. Exactly one of them applies to each request, because Envoy
/// ignores a list if one of its actions has no value.
pub(crate) fn actions(limit: &RateLimit) -> Vec<Vec<Action>> {
    let is_method = |key: &RateLimitKey| matches!(key.kind, Some(Kind::Method(_)));
    if limit.keys.iter().any(is_method) {
        vec![
            of_methods(limit, Some(true)),
            of_methods(limit, Some(false)),
        ]
    } else {
        vec![of_methods(limit, None)]
    }
}

/// `known` is `None` if the method has no effect.
fn of_methods(limit: &RateLimit, known: Option<bool>) -> Vec<Action> {
    let fixed = |key: &str, value: String| match known {
        Some(known) => if_method(key, value, known),
        None => ActionSpecifier::GenericKey(GenericKey {
            descriptor_key: key.to_owned(),
            descriptor_value: value,
            ..Default::default()
        }),
    };
    // A service's keys already contain all entries.
    let own = limit.service.is_none();
    let own = own.then(|| fixed(LIMIT, file_name(&limit.name)));
    let keys = limit.keys.iter().map(|key| {
        let key_name = if limit.service.is_some() {
            descriptors::name(key)
        } else {
            VALUE.into()
        };
        let value = |command: &str| value(&key_name, command);
        match &key.kind {
            Some(Kind::ClientAddress(_)) | None => {
                ActionSpecifier::RemoteAddress(RemoteAddress::default())
            }
            Some(Kind::RequestHeader(name)) => value(&format!("REQ({name})")),
            Some(Kind::QueryParameter(name)) => value(&format!("QUERY_PARAM({name})")),
            Some(Kind::Cookie(name)) => {
                let key = file_name(name);
                value(&format!("DYNAMIC_METADATA({COOKIES}:{key})"))
            }
            Some(Kind::Path(_)) => value("PATH(NQ:PATH)"),
            // Differs from all other values, which start with `=`.
            Some(Kind::Method(_)) if known == Some(false) => {
                if_method(&key_name, "?".to_owned(), false)
            }
            Some(Kind::Method(_)) => value("REQ(:method)"),
            Some(Kind::Entry(entry)) => fixed(&entry.key, entry.value.clone()),
            Some(Kind::Header(header)) => descriptors::of_header(header),
            Some(Kind::Condition(condition)) => descriptors::of_condition(condition),
        }
    });
    let actions = own.into_iter().chain(keys);
    actions
        .map(|specifier| Action {
            action_specifier: Some(specifier),
        })
        .collect()
}

/// Applies to requests from all addresses. This is the only action whose value Envoy formats by
/// default.
fn value(key: &str, command: &str) -> ActionSpecifier {
    ActionSpecifier::RemoteAddressMatch(RemoteAddressMatch {
        descriptor_value: format!("=%{command}:{COUNTED_BYTES}%"),
        descriptor_key: key.to_owned(),
        address_matcher: Some(AddressMatcher {
            ranges: Vec::new(),
            invert_match: true,
        }),
        ..Default::default()
    })
}

fn if_method(key: &str, value: String, known: bool) -> ActionSpecifier {
    let method: HeaderMatcher = matches::header(":method", wrappers::matching(METHODS));
    ActionSpecifier::HeaderValueMatch(HeaderValueMatch {
        descriptor_key: key.to_owned(),
        descriptor_value: value,
        expect_match: wrappers::boolean(known),
        headers: vec![method],
        ..Default::default()
    })
}

/// Returns the configuration of the filter for cookies, or `None` if no limit needs it.
pub(crate) fn cookies<'l>(limits: impl Iterator<Item = &'l RateLimit>) -> Option<Any> {
    let names = limits.flat_map(|limit| &limit.keys);
    let names = names.filter_map(|RateLimitKey { kind }| match kind {
        Some(Kind::Cookie(name)) => Some(name.as_str()),
        _ => None,
    });
    let names: BTreeSet<&str> = names.collect();
    let rules = names.into_iter().map(|name| Rule {
        cookie: name.to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: COOKIES.to_owned(),
            key: file_name(name),
            ..Default::default()
        }),
        ..Default::default()
    });
    let rules: Vec<Rule> = rules.collect();
    (!rules.is_empty()).then(|| reading(rules))
}

/// Contains a rule, because Envoy rejects a configuration without rules.
pub(crate) fn no_cookies() -> Any {
    reading(vec![Rule {
        cookie: COOKIES.to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: COOKIES.to_owned(),
            key: COOKIES.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }])
}

fn reading(request_rules: Vec<Rule>) -> Any {
    pack_any(Config {
        request_rules,
        ..Default::default()
    })
}
