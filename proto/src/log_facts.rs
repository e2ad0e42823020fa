//! Facts that an access log line may contain, and headers that it must not contain.
//!
//! Never classify a fact as plain if a client can insert a tab into its value. Never allow a header
//! that might contain credentials.

use crate::schema::line_form::Fact;

/// Maximum length of a field name in bytes.
pub const MAX_FIELD_NAME: usize = 64;

/// Maximum length of a header name in bytes.
pub const MAX_HEADER_NAME: usize = 256;

/// Returns all facts, in numeric order.
pub fn all() -> impl Iterator<Item = Fact> {
    (1..).map_while(|number| Fact::try_from(number).ok())
}

/// Returns the fact's field name in a log line, such as `client_address`.
pub fn name(fact: Fact) -> String {
    fact.as_str_name().to_ascii_lowercase()
}

/// Returns the fact with this name.
pub fn named(name: &str) -> Option<Fact> {
    all().find(|fact| self::name(*fact) == name)
}

/// Returns true if every JSON line must include this fact. `sesame-agent logs` and `top` need these
/// facts.
pub fn is_mandatory(fact: Fact) -> bool {
    matches!(
        fact,
        Fact::Time
            | Fact::Gateway
            | Fact::Listener
            | Fact::Port
            | Fact::Protocol
            | Fact::Route
            | Fact::Backend
            | Fact::BackendAddress
            | Fact::Attempts
            | Fact::Status
            | Fact::ResponseFlags
            | Fact::DurationMs
    )
}

/// Returns true if the value cannot contain control characters. Only such facts are safe in text
/// lines, because Envoy does not escape text.
///
/// Envoy rejects control characters in the method, host and path, but not in header values or in
/// names from TLS peers.
pub fn is_plain(fact: Fact) -> bool {
    match fact {
        Fact::Unknown
        | Fact::Details
        | Fact::TerminationDetails
        | Fact::UserAgent
        // If Envoy rejects a request early, these facts still contain the client's value.
        | Fact::RequestId
        | Fact::Traceparent
        | Fact::BackendFailure
        | Fact::TlsServerName
        | Fact::ClientCertificateSubject => false,
        Fact::Time
        | Fact::Method
        | Fact::Host
        | Fact::Path
        | Fact::Protocol
        | Fact::Status
        | Fact::GrpcStatus
        | Fact::ResponseFlags
        | Fact::DurationMs
        | Fact::ResponseDurationMs
        | Fact::BytesReceived
        | Fact::BytesSent
        | Fact::ClientAddress
        | Fact::PeerAddress
        | Fact::ConnectionId
        | Fact::Route
        | Fact::Backend
        | Fact::BackendAddress
        | Fact::Attempts
        | Fact::TlsVersion
        | Fact::TlsCipher
        | Fact::ClientCertificateSha256
        | Fact::Gateway
        | Fact::Listener
        | Fact::Port
        | Fact::BeforeBackendMs
        | Fact::UploadMs
        | Fact::BackendMs
        | Fact::DownloadMs
        | Fact::RefusedBy
        | Fact::ReportedBy
        | Fact::AuthorizationUs
        | Fact::ListenerAuthorizationUs => true,
    }
}

/// Returns true if the name is valid and no fact uses it, so that custom fields cannot forge facts.
pub fn is_free_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    begins && name.len() <= MAX_FIELD_NAME && name.chars().all(fits) && named(name).is_none()
}

/// Parts of header names that suggest credentials. URLs are included because of their query
/// strings.
const SECRET: &[&str] = &[
    "auth",
    "cert",
    "cookie",
    "credential",
    "csrf",
    "jwt",
    "key",
    "location",
    "original-path",
    "original-uri",
    "original-url",
    "passw",
    "referer",
    "referrer",
    "rewrite-url",
    "secret",
    "session",
    "signature",
    "token",
    "xsrf",
];

/// Returns the part of a header's name that makes the header unsafe to log. Pseudo-headers are
/// never logged.
pub fn secret(header: &str) -> Option<&'static str> {
    let plain = header.to_ascii_lowercase().replace('_', "-");
    if plain.starts_with(':') {
        return Some(":");
    }
    if plain == "link" || plain == "refresh" {
        return Some("a URL with its query");
    }
    let found = SECRET.iter().find(|part| plain.contains(**part));
    found.copied()
}

/// Returns true if a header contains no credentials, and its name is safe in a log format.
pub fn is_loggable(header: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let length = 1..=MAX_HEADER_NAME;
    length.contains(&header.len()) && header.chars().all(fits) && secret(header).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_has_a_name_of_its_own() {
        assert_eq!(all().count(), 41);
        for fact in all() {
            assert_eq!(named(&name(fact)), Some(fact));
            assert!(!is_free_name(&name(fact)), "{fact:?}");
        }
        assert_eq!(named("unknown"), None);
        for (name, free) in [
            ("tenant", true),
            ("x.y-z_1", true),
            ("", false),
            ("A", false),
            ("a b", false),
            ("a\"b", false),
            ("1a", false),
            ("é", false),
        ] {
            assert_eq!(is_free_name(name), free, "{name}");
        }
    }

    #[test]
    fn credential_headers_are_secret_in_any_spelling() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "X_API_KEY",
            "apikey",
            "Cookie",
            "set-cookie",
            "x-auth-request-email",
            "x-amz-security-token",
            "x-csrf",
            "referer",
            "Location",
            "x-envoy-original-path",
            "x-forwarded-client-cert",
            ":path",
            ":authority",
        ] {
            assert!(secret(name).is_some(), "{name}");
        }
        for name in ["", "x)%REQ(cookie", "x%", "x?y", "x y"] {
            assert!(!is_loggable(name), "{name}");
        }
        for name in [
            "x-tenant",
            "x-cache",
            "content-type",
            "accept-language",
            "server",
        ] {
            assert!(is_loggable(name), "{name}");
        }
    }
}
