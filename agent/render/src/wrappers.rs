//! Short constructors for protobuf wrapper types and for Envoy's matchers.

#![allow(
    clippy::unnecessary_wraps,
    reason = "prost represents message fields as `Option`"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::{
    Address, DataSource, HeaderValue, HeaderValueOption, SocketAddress, TypedExtensionConfig,
    address, data_source::Specifier, header_value_option::HeaderAppendAction, socket_address,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher};
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::{Any, BoolValue, Duration, UInt32Value, UInt64Value};

pub(crate) fn uint32(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

pub(crate) fn uint64(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

pub(crate) fn boolean(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

pub(crate) fn percent(percent: u32) -> Option<FractionalPercent> {
    Some(FractionalPercent {
        numerator: percent,
        ..Default::default()
    })
}

/// Maximum duration: 100 years. Envoy stores durations as 64-bit nanoseconds, so it rejects much
/// longer ones.
const MAX_SECONDS: i64 = 100 * 365 * 24 * 3600;

pub(crate) fn milliseconds(milliseconds: u64) -> Option<Duration> {
    let seconds = i64::try_from(milliseconds / 1000).map_or(MAX_SECONDS, |s| s.min(MAX_SECONDS));
    let nanos = i32::try_from((milliseconds % 1000) * 1_000_000).unwrap_or_default();
    Some(Duration { seconds, nanos })
}

pub(crate) fn regex(regex: impl Into<String>) -> RegexMatcher {
    // Setting `engine_type` is deprecated: RE2 is the only engine.
    RegexMatcher {
        regex: regex.into(),
        engine_type: None,
    }
}

pub(crate) fn exact(value: impl Into<String>) -> StringMatcher {
    string(string_matcher::MatchPattern::Exact(value.into()))
}

pub(crate) fn matching(pattern: impl Into<String>) -> StringMatcher {
    string(string_matcher::MatchPattern::SafeRegex(regex(pattern)))
}

pub(crate) fn string(pattern: string_matcher::MatchPattern) -> StringMatcher {
    StringMatcher {
        ignore_case: false,
        match_pattern: Some(pattern),
    }
}

/// `words` must be lowercase. Never matches the empty string.
pub(crate) fn matching_none_of(words: &[&str]) -> StringMatcher {
    matching(format!("(?i:{})", none_of(words)))
}

/// RE2 has no negative lookahead, so the expression branches at each character.
fn none_of(words: &[&str]) -> String {
    let mut rests: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for word in words {
        let mut characters = word.chars();
        if let Some(first) = characters.next() {
            rests.entry(first).or_default().push(characters.as_str());
        }
    }
    if rests.is_empty() {
        return ".+".to_owned();
    }
    let escaped = |character: char| format!(r"\x{{{:x}}}", u32::from(character));
    let first: String = rests.keys().copied().map(escaped).collect();
    let mut branches = vec![format!("[^{first}].*")];
    if !words.contains(&"") {
        branches.push(String::new());
    }
    for (first, rest) in rests {
        branches.push(format!("{}(?:{})", escaped(first), none_of(&rest)));
    }
    branches.join("|")
}

pub(crate) fn literal(text: &str) -> String {
    text.replace('%', "%%")
}

/// `value` is an Envoy format string.
pub(crate) fn header(name: &str, value: String, action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_owned(),
            value,
            ..Default::default()
        }),
        append_action: action.into(),
        ..Default::default()
    }
}

pub(crate) fn extension(name: &str, config: Any) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(config),
    }
}

pub(crate) fn text(text: impl Into<String>) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineString(text.into())),
        ..Default::default()
    }
}

pub(crate) fn bytes(bytes: &[u8]) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineBytes(bytes.to_vec())),
        ..Default::default()
    }
}

pub(crate) fn socket(address: IpAddr, port: u32, protocol: socket_address::Protocol) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            protocol: protocol.into(),
            address: address.to_string(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_matches_all_but_the_words() {
        let expression = format!("^(?i:{})$", none_of(&["websocket", "web", "spdy/3.1"]));
        let expression = regex::Regex::new(&expression).unwrap();
        for word in ["websocket", "WebSocket", "WEB", "SPDY/3.1"] {
            assert!(!expression.is_match(word), "{word}");
        }
        for other in [
            "",
            "w",
            "webs",
            "websockets",
            "TLS/1.2",
            "h2c",
            "spdy/3x1",
            "xweb",
        ] {
            assert!(expression.is_match(other), "{other}");
        }
    }

    #[test]
    fn percent_sign_in_name_is_escaped() {
        assert_eq!(literal("a%PROTOCOL%b"), "a%%PROTOCOL%%b");
    }
}
