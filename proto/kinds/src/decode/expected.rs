//! Describes the values that a field accepts, for error messages.

use serde::de::Expected;

/// Field names and their ranges, as defined by the API.
const INTEGERS: &[(&str, i64, i64)] = &[
    ("attempts", 0, i32::MAX as i64),
    ("burst", 0, i32::MAX as i64),
    ("codes", 400, 599),
    ("connectionBufferKib", 4, 1_024),
    ("consecutiveGatewayErrors", 0, 1_000),
    ("consecutiveServerErrors", 0, 1_000),
    ("count", -1, 1_000_000),
    ("denominator", 1, i32::MAX as i64),
    ("drainSeconds", 1, 3_600),
    ("end", 101, 600),
    ("first", 100, 599),
    ("generation", 0, i64::MAX),
    ("healthPort", 1, 65_535),
    ("healthyThreshold", 1, 1_000),
    ("healthyThresholdCount", 0, 1_000),
    ("hops", 0, 16),
    ("hosts", 1, 2_000),
    ("http", 1, 65_535),
    ("https", 1, 65_535),
    ("inside", 1, 65_535),
    ("intervalSeconds", 0, 86_400),
    ("last", 100, 599),
    ("maxAge", 1, i32::MAX as i64),
    ("maxConcurrentStreams", 1, 10_000),
    ("maxConnectionRequests", 1, 1_000_000_000),
    ("maxConnections", 1, i32::MAX as i64),
    ("maxConnectionsPerEndpoint", 1, i32::MAX as i64),
    ("maxEjectionPercent", 1, 100),
    ("maxErrorIncrease", 0, 100),
    ("maxInternalRedirects", 0, 16),
    ("maxPendingRequests", 1, i32::MAX as i64),
    ("maxRequestBytes", 1, i32::MAX as i64),
    ("maxRequestHeaders", 1, 10_000),
    ("maxRequestHeadersKib", 1, 8_192),
    ("maxRequests", 1, i32::MAX as i64),
    ("maxResponseHeaders", 1, 10_000),
    ("maxResponseHeadersKib", 1, 8_192),
    ("maxRetries", 1, i32::MAX as i64),
    ("maxSize", 0, i32::MAX as i64),
    ("metricsPort", 1, 65_535),
    ("minEndpoints", 1, 1_000),
    ("minRetries", 0, 1_024),
    ("minStatus", 100, 599),
    ("minWeightPercent", 0, 100),
    ("nodePort", 1, 65_535),
    ("number", 1, 65_535),
    ("numerator", 0, i32::MAX as i64),
    ("offset", 0, 65_534),
    ("outside", 1, 65_535),
    ("panicThreshold", 0, 100),
    ("perHostMaxConnections", 1, i32::MAX as i64),
    ("percent", 0, 100),
    ("port", 1, 65_535),
    ("ports", 1, 65_535),
    ("probes", 1, 127),
    ("redirectResponseCodes", 302, 308),
    ("replicas", 1, 1_000),
    ("requests", 1, i32::MAX as i64),
    ("responseStatusCode", 400, 511),
    ("retriableStatusCodes", 400, 599),
    ("start", 100, 599),
    ("statusCode", 200, 599),
    ("timeoutSeconds", 0, 86_400),
    ("tolerationSeconds", 0, i64::MAX),
    ("trustedHops", 0, 16),
    ("unhealthyThreshold", 1, 1_000),
    ("unhealthyThresholdCount", 0, 1_000),
    ("weight", 0, 1_000_000),
];

pub(super) fn integer(field: &str) -> String {
    match INTEGERS.iter().find(|(name, ..)| *name == field) {
        Some((_, least, i64::MAX)) => format!("an integer of at least {least}"),
        Some((_, least, most)) if *most == i64::from(i32::MAX) => {
            format!("an integer of at least {least} (and at most {most})")
        }
        Some((_, least, most)) => format!("an integer from {least} to {most}"),
        None => "an integer".to_owned(),
    }
}

pub(super) fn text(wanted: &dyn Expected) -> String {
    let wanted = wanted.to_string();
    if wanted == "a string" {
        "text".to_owned()
    } else {
        wanted
    }
}

pub(super) fn quotes(wanted: &str) -> &'static str {
    if wanted == "text" {
        "; put it in quotes"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        assert_eq!(integer("weight"), "an integer from 0 to 1000000");
        assert_eq!(integer("generation"), "an integer of at least 0");
        assert_eq!(integer("other"), "an integer");
        assert!(INTEGERS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
