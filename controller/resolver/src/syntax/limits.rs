//! Limits on fields. Most repeat the API's schemas, because no API server validates objects from
//! files. Lists that are too long are rejected unread, which bounds the cost of resolution.

use std::fmt::Arguments;
use std::ops::RangeInclusive;

use super::names::is_field_value;

pub(crate) const MAX_LISTENERS: usize = 64;
/// Maximum number of listeners per Gateway, including its ListenerSets. The API has no such limit.
/// In Envoy, each HTTPS listener is a filter chain with its own connection manager.
pub(crate) const MAX_ATTACHED_LISTENERS: usize = 2048;
pub(crate) const MAX_ADDRESSES: usize = 16;
pub(crate) const MAX_FRONTEND_PORTS: usize = 64;
pub(crate) const MAX_KINDS: usize = 8;
pub(crate) const MAX_TLS_OPTIONS: usize = 16;
/// Maximum number of ALPN protocols per listener. The API has no such limit.
pub(crate) const MAX_ALPN: usize = 16;
pub(crate) const MAX_CERTIFICATE_REFS: usize = 64;
pub(crate) const MAX_CLIENT_CA_REFS: usize = 16;
/// Maximum number of hostnames for which an invalid route rejects requests. With more, it rejects
/// requests for all hosts. The API has no such limit.
pub(crate) const MAX_REFUSED_HOSTNAMES: usize = 1024;
pub(crate) const MAX_PARENTS: usize = 32;
pub(crate) const MAX_MATCHES: usize = 64;
pub(crate) const MAX_ROUTE_MATCHES: usize = 128;
/// Maximum number of rules, and of paths, per Ingress. The API has no such limits.
pub(crate) const MAX_INGRESS_RULES: usize = 512;
pub(crate) const MAX_INGRESS_PATHS: usize = 1024;
/// Maximum number of TLS hosts per Ingress. The API has no such limit.
pub(crate) const MAX_INGRESS_TLS_HOSTS: usize = 512;
/// Maximum depth of an HTTPProxy below its root. The API has no such limit.
pub(crate) const MAX_PROXY_DEPTH: usize = 32;
/// Maximum number of routes and includes per HTTPProxy, summed over all its occurrences below one
/// namespace's roots. The API has no such limit.
pub(crate) const MAX_PROXY_ROUTES: usize = 4096;
pub(crate) const MAX_MATCHED_VALUES: usize = 16;
pub(crate) const MAX_PATH: usize = 1024;
pub(crate) const MAX_FILTERS: usize = 16;
pub(crate) const MAX_FILTER_HEADERS: usize = 16;
/// Maximum number of headers in a list for HTTPProxies or Ingresses. The API has no such limit.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;
pub(crate) const MAX_CORS_ENTRIES: usize = 64;
pub(crate) const MAX_CORS_METHODS: usize = 9;
pub(crate) const MAX_AUTH_HEADERS: usize = 64;
pub(crate) const MAX_AUTH_CONTEXT: usize = 32;
/// Maximum size of a body to authorize, in bytes. The API has no such limit.
pub(crate) const MAX_AUTH_BODY: u32 = 1024 * 1024;
pub(crate) const MAX_BACKEND_REFS: usize = 16;
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;
pub(crate) const MAX_OCG_GATEWAYS: usize = 64;
/// Maximum number of networks in a list. The API has no such limit.
pub(crate) const MAX_NETWORKS: usize = 128;
pub(crate) const MAX_POLICY_TARGETS: usize = 16;
pub(crate) const MAX_COLLECTOR_HEADERS: usize = 16;
pub(crate) const MAX_HEADER_VALUE: usize = 4096;
/// Maximum number of span attributes. The API has no such limit.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 1024;
pub(crate) const MAX_SERVICE_NAME: usize = 253;
pub(crate) const MAX_SPAN_NAME: usize = 256;
pub(crate) const MAX_POLICY_CA_REFS: usize = 8;
pub(crate) const MAX_SUBJECT_ALT_NAMES: usize = 5;
pub(crate) const MAX_URI: usize = 253;
pub(crate) const MAX_SUBJECT_NAMES: usize = 8;
/// Maximum size of PEM data in bytes, and maximum number of certificates, larger than real chains
/// and bundles. The API has neither limit.
pub(crate) const MAX_PEM_BYTES: usize = 512 * 1024;
pub(crate) const MAX_PEM_CERTIFICATES: usize = 512;
/// Maximum number of revocation lists, and of revoked certificates. The API has neither limit.
pub(crate) const MAX_PEM_LISTS: usize = 64;
pub(crate) const MAX_REVOKED: usize = 10_000;

pub(crate) fn entries(
    field: &str,
    count: usize,
    allowed: RangeInclusive<usize>,
) -> Result<(), String> {
    if allowed.contains(&count) {
        return Ok(());
    }
    let (least, most) = allowed.into_inner();
    Err(match least {
        0 => format!("{field} has {count} entries; at most {most} are allowed"),
        _ => format!("{field} has {count} entries; {least} to {most} are allowed"),
    })
}

pub(crate) fn max_bytes(field: &str, value: &str, most: usize) -> Result<(), String> {
    let count = value.len();
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "{field} is {count} bytes long; at most {most} are allowed"
    ))
}

/// Also rejects characters that headers must not contain.
pub(crate) fn field_value(at: Arguments<'_>, value: &str, most: usize) -> Result<(), String> {
    if !(1..=most).contains(&value.len()) {
        return Err(format!(
            "{at}.value is {} bytes long; expected 1 to {most}",
            value.len()
        ));
    }
    if !is_field_value(value) {
        return Err(format!("{at}.value {value:?} has control characters"));
    }
    Ok(())
}
