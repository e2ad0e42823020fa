//! Limits on entries, sizes and ranges of all fields that resolution bounds, and their error
//! messages. The limits in the API's schemas are repeated, because files never pass through an API
//! server. A list that is too long is rejected without reading it: limits also bound our own work.

use std::fmt::Arguments;
use std::ops::RangeInclusive;

use super::names::is_field_value;

/// Maximum number of listeners of a Gateway or a ListenerSet.
pub(crate) const MAX_LISTENERS: usize = 64;
/// Maximum number of listeners of a Gateway and its ListenerSets together. In Envoy, each HTTPS
/// listener becomes a filter chain with its own connection manager. Not a limit of the API.
pub(crate) const MAX_ATTACHED_LISTENERS: usize = 2048;
/// Maximum number of addresses of a Gateway.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Maximum number of entries of `spec.tls.frontend.perPort`.
pub(crate) const MAX_FRONTEND_PORTS: usize = 64;
/// Maximum number of entries of `allowedRoutes.kinds`.
pub(crate) const MAX_KINDS: usize = 8;
/// Maximum number of `tls.options` of a listener, and of application protocols in an option. The
/// second limit is not a limit of the API.
pub(crate) const MAX_TLS_OPTIONS: usize = 16;
pub(crate) const MAX_ALPN: usize = 16;
/// Maximum number of certificates of a listener.
pub(crate) const MAX_CERTIFICATE_REFS: usize = 64;
/// Maximum number of references to CA certificates for clients.
pub(crate) const MAX_CLIENT_CA_REFS: usize = 16;
/// Maximum number of hostnames of an unserved route that reject requests individually. Not in the
/// API.
pub(crate) const MAX_REFUSED_HOSTNAMES: usize = 1024;
/// Maximum number of parents of a route.
pub(crate) const MAX_PARENTS: usize = 32;
/// Maximum number of matches of a rule, and of all rules of a route together.
pub(crate) const MAX_MATCHES: usize = 64;
pub(crate) const MAX_ROUTE_MATCHES: usize = 128;
/// Maximum number of rules of an Ingress, and of paths of all rules together. Not in the API.
pub(crate) const MAX_INGRESS_RULES: usize = 512;
pub(crate) const MAX_INGRESS_PATHS: usize = 1024;
/// Maximum number of hosts with certificates of an Ingress. Not in the API.
pub(crate) const MAX_INGRESS_TLS_HOSTS: usize = 512;
/// Maximum number of includes from a root to an HTTPProxy. Maximum number of routes and includes of
/// an HTTPProxy, summed over its occurrences below the roots of one namespace. Neither is in the
/// API.
pub(crate) const MAX_PROXY_DEPTH: usize = 32;
pub(crate) const MAX_PROXY_ROUTES: usize = 4096;
/// Maximum number of headers, and of query parameters, of a match.
pub(crate) const MAX_MATCHED_VALUES: usize = 16;
/// Maximum number of characters of a path in a match or a replacement.
pub(crate) const MAX_PATH: usize = 1024;
/// Maximum number of filters of a rule or a backend.
pub(crate) const MAX_FILTERS: usize = 16;
/// Maximum number of headers in each list of a filter.
pub(crate) const MAX_FILTER_HEADERS: usize = 16;
/// Maximum number of headers in each list of an HTTPProxy. Not in the API.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;
/// Maximum number of entries in each list of a CORS filter, and of methods.
pub(crate) const MAX_CORS_ENTRIES: usize = 64;
pub(crate) const MAX_CORS_METHODS: usize = 9;
/// Maximum number of entries in each list of an ExternalAuth filter, and of bytes of a forwarded
/// body. The second limit is not in the API.
pub(crate) const MAX_AUTH_HEADERS: usize = 64;
pub(crate) const MAX_AUTH_BODY: u32 = 1024 * 1024;
/// Maximum number of backends of a rule, and maximum weight.
pub(crate) const MAX_BACKEND_REFS: usize = 16;
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;
/// Maximum number of Gateways that a MeshOCGPolicy references.
pub(crate) const MAX_OCG_GATEWAYS: usize = 64;
/// Maximum number of networks in a list of client addresses. Not in the API.
pub(crate) const MAX_NETWORKS: usize = 128;
/// Maximum number of targets of a policy.
pub(crate) const MAX_POLICY_TARGETS: usize = 16;
/// Maximum number of headers for a collector, and of characters of a header value.
pub(crate) const MAX_COLLECTOR_HEADERS: usize = 16;
pub(crate) const MAX_HEADER_VALUE: usize = 4096;
/// Maximum number of span attributes, of characters of an attribute name, and of an attribute
/// value. The first limit is not in the API.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 1024;
/// Maximum number of characters of service names, and of span names.
pub(crate) const MAX_SERVICE_NAME: usize = 253;
pub(crate) const MAX_SPAN_NAME: usize = 256;
/// Maximum number of references to CA certificates of a BackendTLSPolicy.
pub(crate) const MAX_POLICY_CA_REFS: usize = 8;
/// Maximum number of names for a backend's certificate, and of characters of a URI.
pub(crate) const MAX_SUBJECT_ALT_NAMES: usize = 5;
pub(crate) const MAX_URI: usize = 253;
/// Maximum number of names for the certificate of an HTTPProxy's Service.
pub(crate) const MAX_SUBJECT_NAMES: usize = 8;
/// Maximum size of PEM text in bytes, and maximum number of certificates in it. Any real chain or
/// bundle is smaller. Neither limit is in the API.
pub(crate) const MAX_PEM_BYTES: usize = 512 * 1024;
pub(crate) const MAX_PEM_CERTIFICATES: usize = 512;
/// Maximum number of revocation lists in PEM text, and of revoked certificates. Not in the API.
pub(crate) const MAX_PEM_LISTS: usize = 64;
pub(crate) const MAX_REVOKED: usize = 10_000;

/// Fails unless the number of entries in this list is allowed.
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

/// Fails if the value of this field has too many characters.
pub(crate) fn characters(field: &str, value: &str, most: usize) -> Result<(), String> {
    let count = value.len();
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "{field} has {count} characters; at most {most} are allowed"
    ))
}

/// Fails unless the value has a valid length and is allowed in a header.
pub(crate) fn field_value(at: Arguments<'_>, value: &str, most: usize) -> Result<(), String> {
    if !(1..=most).contains(&value.len()) {
        return Err(format!(
            "{at}.value has {} characters; expected 1 to {most}",
            value.len()
        ));
    }
    if !is_field_value(value) {
        return Err(format!("{at}.value {value:?} has control characters"));
    }
    Ok(())
}
