//! Checks the descriptors of `rateLimitPolicy.global`, which is not supported.

use crate::api::{
    ProxyDescriptor, ProxyDescriptorEntry, ProxyDescriptorHeader, ProxyDescriptorMatch,
    ProxyGenericKey, ProxyRemoteAddress,
};
use crate::resolve::syntax::limits::{self, MAX_MATCHED_VALUES, MAX_MATCHES};
use crate::resolve::syntax::names;

/// `descriptors` must not be empty. Errors start with the field's path.
pub(super) fn check(descriptors: &[ProxyDescriptor]) -> Result<(), String> {
    limits::entries("descriptors", descriptors.len(), 1..=MAX_MATCHES)?;
    for (i, ProxyDescriptor { entries }) in descriptors.iter().enumerate() {
        let field = format!("descriptors[{i}].entries");
        limits::entries(&field, entries.len(), 1..=MAX_MATCHED_VALUES)?;
        for (k, entry) in entries.iter().enumerate() {
            check_entry(entry).map_err(|why| format!("{field}[{k}]: {why}"))?;
        }
    }
    Ok(())
}

fn check_entry(entry: &ProxyDescriptorEntry) -> Result<(), String> {
    let ProxyDescriptorEntry {
        generic_key,
        request_header,
        request_header_value_match,
        remote_address,
    } = entry;
    let filled = |field: &str, text: &str| {
        let why = format!("{field} is empty; set it");
        (!text.is_empty()).then_some(()).ok_or(why)
    };
    match (
        generic_key,
        request_header,
        request_header_value_match,
        remote_address,
    ) {
        (Some(ProxyGenericKey { key: _, value }), None, None, None) => {
            filled("genericKey.value", value)
        }
        (None, Some(header), None, None) => {
            let ProxyDescriptorHeader {
                header_name,
                descriptor_key,
            } = header;
            names::check_token(format_args!("requestHeader.headerName"), header_name)?;
            filled("requestHeader.descriptorKey", descriptor_key)
        }
        (None, None, Some(matched), None) => {
            let ProxyDescriptorMatch {
                headers,
                expect_match: _,
                value,
            } = matched;
            let field = "requestHeaderValueMatch.headers";
            limits::entries(field, headers.len(), 1..=MAX_MATCHED_VALUES)?;
            for header in headers {
                names::check_token(format_args!("{field}: name"), &header.name)?;
            }
            filled("requestHeaderValueMatch.value", value)
        }
        (None, None, None, Some(ProxyRemoteAddress {})) => Ok(()),
        _ => Err(
            "expected exactly one of genericKey, requestHeader, requestHeaderValueMatch and \
             remoteAddress"
                .to_owned(),
        ),
    }
}
