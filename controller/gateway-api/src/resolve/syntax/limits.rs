//! Limits on entries, sizes and ranges of all fields that resolution bounds, with their messages.
//! The limits of the API's schema are repeated, because files have not passed an API server. A
//! longer list is refused without reading the rest: limits bound our own work.

use std::fmt::Arguments;
use std::ops::RangeInclusive;

use super::names::is_field_value;

/// Listeners of a Gateway, and of a ListenerSet.
pub(crate) const MAX_LISTENERS: usize = 64;
/// Listeners of a Gateway together with its ListenerSets. Each HTTPS listener becomes a filter
/// chain with a separate connection manager in Envoy. This limit is Sesame's.
pub(crate) const MAX_ATTACHED_LISTENERS: usize = 2048;
/// Addresses of a Gateway.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Entries of `spec.tls.frontend.perPort`.
pub(crate) const MAX_FRONTEND_PORTS: usize = 64;
/// Entries of `allowedRoutes.kinds`.
pub(crate) const MAX_KINDS: usize = 8;
/// Entries of `tls.options` of a listener, and application protocols in one of them. The second
/// limit is Sesame's.
pub(crate) const MAX_TLS_OPTIONS: usize = 16;
pub(crate) const MAX_ALPN: usize = 16;
/// Certificates of a listener.
pub(crate) const MAX_CERTIFICATE_REFS: usize = 64;
/// References to CA certificates for clients.
pub(crate) const MAX_CLIENT_CA_REFS: usize = 16;
/// Hostnames of an unserved route whose requests are refused individually. This limit is Sesame's.
pub(crate) const MAX_REFUSED_HOSTNAMES: usize = 1024;
/// Parents of a route.
pub(crate) const MAX_PARENTS: usize = 32;
/// Matches of a rule, and of all rules of a route together.
pub(crate) const MAX_MATCHES: usize = 64;
pub(crate) const MAX_ROUTE_MATCHES: usize = 128;
/// Rules of an Ingress, and paths of all its rules together. Sesame's limits.
pub(crate) const MAX_INGRESS_RULES: usize = 512;
pub(crate) const MAX_INGRESS_PATHS: usize = 1024;
/// Hosts of an Ingress with certificates. Sesame's limit.
pub(crate) const MAX_INGRESS_TLS_HOSTS: usize = 512;
/// Includes from a root to an HTTPProxy. Routes and includes of an HTTPProxy, summed over its places
/// below the roots of one namespace. Sesame's limits.
pub(crate) const MAX_PROXY_DEPTH: usize = 32;
pub(crate) const MAX_PROXY_ROUTES: usize = 4096;
/// Headers, and query parameters, of one match.
pub(crate) const MAX_MATCHED_VALUES: usize = 16;
/// Characters of a path in a match or a replacement.
pub(crate) const MAX_PATH: usize = 1024;
/// Filters of a rule or a backend.
pub(crate) const MAX_FILTERS: usize = 16;
/// Headers in each list of a filter.
pub(crate) const MAX_FILTER_HEADERS: usize = 16;
/// Headers in each list of an HTTPProxy. Sesame's limit.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;
/// Entries of the lists of a CORS filter, and of its methods.
pub(crate) const MAX_CORS_ENTRIES: usize = 64;
pub(crate) const MAX_CORS_METHODS: usize = 9;
/// Entries of each list of an ExternalAuth filter, and bytes of a forwarded body. The second limit
/// is Sesame's.
pub(crate) const MAX_AUTH_HEADERS: usize = 64;
pub(crate) const MAX_AUTH_BODY: u32 = 1024 * 1024;
/// Backends of a rule, and the weight of one.
pub(crate) const MAX_BACKEND_REFS: usize = 16;
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;
/// Gateways that a MeshOCGPolicy names.
pub(crate) const MAX_OCG_GATEWAYS: usize = 64;
/// Networks in a list of client addresses. Sesame's limit.
pub(crate) const MAX_NETWORKS: usize = 128;
/// Targets of a policy.
pub(crate) const MAX_POLICY_TARGETS: usize = 16;
/// Headers for a collector, and the characters of the value of one.
pub(crate) const MAX_COLLECTOR_HEADERS: usize = 16;
pub(crate) const MAX_HEADER_VALUE: usize = 4096;
/// Attributes of spans, characters of an attribute's name, and of its value. The first limit is
/// Sesame's.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 1024;
/// Characters of the names of a service and of a span.
pub(crate) const MAX_SERVICE_NAME: usize = 253;
pub(crate) const MAX_SPAN_NAME: usize = 256;
/// References to CA certificates of a BackendTLSPolicy.
pub(crate) const MAX_POLICY_CA_REFS: usize = 8;
/// Names for the certificate of a backend, and the characters of one that is a URI.
pub(crate) const MAX_SUBJECT_ALT_NAMES: usize = 5;
pub(crate) const MAX_URI: usize = 253;
/// Names for the certificate of an HTTPProxy's Service.
pub(crate) const MAX_SUBJECT_NAMES: usize = 8;
/// Bytes of a PEM text, and certificates in it: more than any real chain or bundle has. Sesame's
/// limits.
pub(crate) const MAX_PEM_BYTES: usize = 512 * 1024;
pub(crate) const MAX_PEM_CERTIFICATES: usize = 512;
/// Revocation lists in a text, and certificates that all of them revoke. Sesame's limits.
pub(crate) const MAX_PEM_LISTS: usize = 64;
pub(crate) const MAX_REVOKED: usize = 10_000;

/// Fails unless the list in this field has an allowed number of entries.
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
