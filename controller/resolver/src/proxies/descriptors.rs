//! Reads the descriptors of `rateLimitPolicy.global`.

use sesame_proto::schema::{
    RateLimit, RateLimitCondition, RateLimitEntry, RateLimitHeader, RateLimitKey,
    rate_limit_key::Kind,
};

use super::values::header_match;
use crate::syntax::limits::{self, MAX_MATCHED_VALUES};
use crate::syntax::names;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{
    ProxyDescriptor, ProxyDescriptorEntry, ProxyDescriptorHeader, ProxyDescriptorMatch,
    ProxyGenericKey, ProxyRemoteAddress,
};

/// Leaves a place for the local limit.
const MAX_DESCRIPTORS: usize = RateLimit::MAX_OF_ROUTE - 1;

/// Contour's default keys.
const GENERIC_KEY: &str = "generic_key";
const HEADER_MATCH: &str = "header_match";

/// Returns the keys of each descriptor. Errors start with the field's path.
pub(super) fn read(
    descriptors: &[ProxyDescriptor],
    regexes: &mut Regexes,
) -> Result<Vec<Vec<RateLimitKey>>, String> {
    limits::entries("descriptors", descriptors.len(), 1..=MAX_DESCRIPTORS)?;
    let mut all = Vec::with_capacity(descriptors.len());
    for (i, ProxyDescriptor { entries }) in descriptors.iter().enumerate() {
        let field = format!("descriptors[{i}].entries");
        limits::entries(&field, entries.len(), 1..=RateLimit::MAX_SERVICE_KEYS)?;
        let mut keys = Vec::with_capacity(entries.len());
        for (k, entry) in entries.iter().enumerate() {
            let kind = read_entry(entry, regexes).map_err(|why| format!("{field}[{k}]: {why}"))?;
            keys.push(RateLimitKey { kind: Some(kind) });
        }
        let most = RateLimit::MAX_SERVICE_KEY_BYTES;
        let size = RateLimit::size_of_keys(&keys);
        if size > most {
            return Err(format!("{field}: {size} bytes; expected at most {most}"));
        }
        all.push(keys);
    }
    Ok(all)
}

fn read_entry(entry: &ProxyDescriptorEntry, regexes: &mut Regexes) -> Result<Kind, String> {
    let ProxyDescriptorEntry {
        generic_key,
        request_header,
        request_header_value_match,
        remote_address,
    } = entry;
    match (
        generic_key,
        request_header,
        request_header_value_match,
        remote_address,
    ) {
        (Some(ProxyGenericKey { key, value }), None, None, None) => {
            let key = if key.is_empty() { GENERIC_KEY } else { key };
            Ok(Kind::Entry(RateLimitEntry {
                key: text("genericKey.key", key)?,
                value: text("genericKey.value", value)?,
            }))
        }
        (None, Some(header), None, None) => {
            let ProxyDescriptorHeader {
                header_name,
                descriptor_key,
            } = header;
            names::check_token(format_args!("requestHeader.headerName"), header_name)?;
            Ok(Kind::Header(RateLimitHeader {
                key: text("requestHeader.descriptorKey", descriptor_key)?,
                name: header_name.to_ascii_lowercase(),
            }))
        }
        (None, None, Some(matched), None) => condition(matched, regexes),
        (None, None, None, Some(ProxyRemoteAddress {})) => Ok(Kind::ClientAddress(true)),
        _ => Err(
            "expected exactly one of genericKey, requestHeader, requestHeaderValueMatch and \
             remoteAddress"
                .to_owned(),
        ),
    }
}

fn condition(matched: &ProxyDescriptorMatch, regexes: &mut Regexes) -> Result<Kind, String> {
    let ProxyDescriptorMatch {
        headers,
        expect_match,
        value,
    } = matched;
    let field = "requestHeaderValueMatch.headers";
    limits::entries(field, headers.len(), 1..=MAX_MATCHED_VALUES)?;
    let headers = headers.iter().enumerate().map(|(i, header)| {
        if !header.regex.is_empty() {
            return Err(format!(
                "{field}[{i}].regex is not supported; use exact or contains"
            ));
        }
        let read = header_match(header, regexes, &mut 0);
        read.map_err(|why| format!("{field}[{i}]: {why}"))
    });
    Ok(Kind::Condition(RateLimitCondition {
        headers: headers.collect::<Result<_, _>>()?,
        entry: Some(RateLimitEntry {
            key: HEADER_MATCH.to_owned(),
            value: text("requestHeaderValueMatch.value", value)?,
        }),
        inverted: *expect_match == Some(false),
    }))
}

fn text(field: &str, text: &str) -> Result<String, String> {
    limits::max_bytes(field, text, RateLimit::MAX_ENTRY_BYTES)?;
    if text.is_empty() || text.contains('%') {
        return Err(format!("{field} {text:?}: expected a value without %"));
    }
    Ok(text.to_owned())
}
