//! Syntax of the names that Kubernetes gives to objects and their parts (RFC 1123).

/// Returns true for a DNS label: 1 to 63 characters of a-z, 0-9 and `-`, with no `-` at either end.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
    bytes.len() <= 63 && bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

/// Returns true for a DNS subdomain: labels with `.` between them, at most 253 characters in all.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}
