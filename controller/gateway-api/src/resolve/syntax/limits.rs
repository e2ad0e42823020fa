//! Limits on list lengths, sizes and ranges of fields, and their error messages. Repeats the limits
//! in the API's schemas, because objects from files never pass through an API server. A list that
//! is too long is rejected unread, because the limits also bound the cost of resolution.

use std::fmt::Arguments;
use std::ops::RangeInclusive;

use super::names::is_field_value;

/// Maximum number of listeners per Gateway or ListenerSet.
pub(crate) const MAX_LISTENERS: usize = 64;
/// Maximum number of listeners of a Gateway and its ListenerSets together. The API has no such
/// limit. In Envoy, each HTTPS listener is a filter chain with its own connection manager.
pub(crate) const MAX_ATTACHED_LISTENERS: usize = 2048;
/// Maximum number of addresses per Gateway.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Maximum number of entries in `spec.tls.frontend.perPort`.
pub(crate) const MAX_FRONTEND_PORTS: usize = 64;
/// Maximum number of entries in `allowedRoutes.kinds`.
pub(crate) const MAX_KINDS: usize = 8;
/// Maximum number of `tls.options` per listener, and of application protocols per option. The API
/// has only the first limit.
pub(crate) const MAX_TLS_OPTIONS: usize = 16;
pub(crate) const MAX_ALPN: usize = 16;
/// Maximum number of certificates per listener.
pub(crate) const MAX_CERTIFICATE_REFS: usize = 64;
/// Maximum number of references to CA certificates for validating clients.
pub(crate) const MAX_CLIENT_CA_REFS: usize = 16;
/// Maximum number of hostnames for which an invalid route rejects requests. A route with more
/// hostnames rejects requests for all hosts. The API has no such limit.
pub(crate) const MAX_REFUSED_HOSTNAMES: usize = 1024;
/// Maximum number of parents per route.
pub(crate) const MAX_PARENTS: usize = 32;
/// Maximum number of matches per rule, and in total across a route's rules.
pub(crate) const MAX_MATCHES: usize = 64;
pub(crate) const MAX_ROUTE_MATCHES: usize = 128;
/// Maximum number of rules in an Ingress, and of paths in all of its rules together. The API has no
/// such limits.
pub(crate) const MAX_INGRESS_RULES: usize = 512;
pub(crate) const MAX_INGRESS_PATHS: usize = 1024;
/// Maximum number of hosts with certificates in an Ingress. The API has no such limit.
pub(crate) const MAX_INGRESS_TLS_HOSTS: usize = 512;
/// Maximum number of includes between a root and an HTTPProxy, and maximum number of routes and
/// includes of an HTTPProxy, summed over its occurrences below the roots of one namespace. The API
/// has neither limit.
pub(crate) const MAX_PROXY_DEPTH: usize = 32;
pub(crate) const MAX_PROXY_ROUTES: usize = 4096;
/// Maximum number of headers, and of query parameters, per match.
pub(crate) const MAX_MATCHED_VALUES: usize = 16;
/// Maximum number of characters in a path that is matched or set.
pub(crate) const MAX_PATH: usize = 1024;
/// Maximum number of filters per rule or backend.
pub(crate) const MAX_FILTERS: usize = 16;
/// Maximum number of headers in each list of a filter.
pub(crate) const MAX_FILTER_HEADERS: usize = 16;
/// Maximum number of headers in each list of an HTTPProxy. The API has no such limit.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;
/// Maximum number of entries in each list of a CORS filter, and maximum number of allowed methods.
pub(crate) const MAX_CORS_ENTRIES: usize = 64;
pub(crate) const MAX_CORS_METHODS: usize = 9;
/// Maximum number of entries in each list of an ExternalAuth filter, and maximum size in bytes of a
/// request body that it forwards. The API has only the first limit.
pub(crate) const MAX_AUTH_HEADERS: usize = 64;
pub(crate) const MAX_AUTH_BODY: u32 = 1024 * 1024;
/// Maximum number of backends per rule, and maximum weight of a backend.
pub(crate) const MAX_BACKEND_REFS: usize = 16;
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;
/// Maximum number of Gateways that a MeshOCGPolicy may reference.
pub(crate) const MAX_OCG_GATEWAYS: usize = 64;
/// Maximum number of networks in a list of client addresses. The API has no such limit.
pub(crate) const MAX_NETWORKS: usize = 128;
/// Maximum number of targets per policy.
pub(crate) const MAX_POLICY_TARGETS: usize = 16;
/// Maximum number of headers per collector, and of characters in a header value.
pub(crate) const MAX_COLLECTOR_HEADERS: usize = 16;
pub(crate) const MAX_HEADER_VALUE: usize = 4096;
/// Maximum number of span attributes, of characters in an attribute name, and of characters in an
/// attribute value. The API has no limit on the number.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 1024;
/// Maximum number of characters in a service name, and in a span name.
pub(crate) const MAX_SERVICE_NAME: usize = 253;
pub(crate) const MAX_SPAN_NAME: usize = 256;
/// Maximum number of CA certificate references per BackendTLSPolicy.
pub(crate) const MAX_POLICY_CA_REFS: usize = 8;
/// Maximum number of subject alternative names that a policy requires of a backend's certificate,
/// and of characters in a URI among them.
pub(crate) const MAX_SUBJECT_ALT_NAMES: usize = 5;
pub(crate) const MAX_URI: usize = 253;
/// Maximum number of subject names that an HTTPProxy accepts in a Service's certificate.
pub(crate) const MAX_SUBJECT_NAMES: usize = 8;
/// Maximum size of PEM text in bytes, and maximum number of certificates in it. Real chains and
/// bundles are smaller. The API has neither limit.
pub(crate) const MAX_PEM_BYTES: usize = 512 * 1024;
pub(crate) const MAX_PEM_CERTIFICATES: usize = 512;
/// Maximum number of revocation lists in PEM text, and of revoked certificates in all of the lists
/// together. The API has neither limit.
pub(crate) const MAX_PEM_LISTS: usize = 64;
pub(crate) const MAX_REVOKED: usize = 10_000;

/// Fails if `field` has too few or too many entries.
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

/// Fails if the value of `field` has more than `most` characters.
pub(crate) fn characters(field: &str, value: &str, most: usize) -> Result<(), String> {
    let count = value.len();
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "{field} has {count} characters; at most {most} are allowed"
    ))
}

/// Fails if the value is too long, or contains characters that headers must not contain.
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
