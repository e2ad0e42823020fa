//! Sets request headers to credentials that backends require. The values are in a separate file, so
//! that route tables contain none.
//!
//! Envoy silently skips filter chains that are missing from this file. The backend then gets no
//! credential at all, because routes remove the client's own header.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use sesame_proto::salts::without_salt;
use sesame_proto::schema::InjectedCredential;

use super::credentials::{self, Pairs};
use super::{headers, request_filters};
use crate::wrappers;

pub(crate) const FILTER: &str = "injected_credential";

pub(crate) fn check(name: &str, injected: &InjectedCredential) -> Result<(), String> {
    let InjectedCredential { header } = injected;
    if InjectedCredential::filter(name).is_none() {
        return Err("its name does not end with `/credentialInjection`".to_owned());
    }
    headers::check_writable(header).map_err(|why| format!("header `{header}`: {why}"))
}

/// If the credential is missing or invalid, the filters respond with 500, and the reason is also
/// returned.
pub(crate) fn chain(
    name: &str,
    injected: &InjectedCredential,
    pairs: &Pairs<'_>,
) -> (Vec<TypedExtensionConfig>, Option<String>) {
    match setting(name, injected, pairs) {
        Ok(filter) => (vec![filter], None),
        Err(why) => (vec![credentials::refusing()], Some(why)),
    }
}

fn setting(
    name: &str,
    injected: &InjectedCredential,
    pairs: &Pairs<'_>,
) -> Result<TypedExtensionConfig, String> {
    let pair = pairs.get(name);
    let pair = pair.ok_or("its credential is not on this host")?;
    let value = std::str::from_utf8(&pair.private_key);
    let value = value.map_err(|_| "its credential is not text")?;
    let value = without_salt(value);
    if value.is_empty() || headers::check_value(value).is_err() {
        return Err("its credential is not a header value".to_owned());
    }
    let option = wrappers::header(
        &injected.header,
        wrappers::literal(value),
        HeaderAppendAction::OverwriteIfExistsOrAdd,
    );
    Ok(request_filters::mutating_filter(vec![Action::Append(
        option,
    )]))
}
