//! Checks the syntax of names and values as the API server does.
//!
//! No API server has validated the objects that an agent reads from files.

use std::fmt::Arguments;

use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

/// Default key of the CA certificates in a referenced ConfigMap or Secret.
pub(crate) const CA_KEY: &str = "ca.crt";

/// Checks an object's namespace and name. Names in the snapshot are built from both, so neither
/// must contain the separators of these names.
pub(crate) fn check_object(namespace: &str, name: &str) -> Result<(), String> {
    if !is_dns_label(namespace) {
        return Err(format!(
            "namespace {namespace:?} is not a label of a-z, 0-9 and '-', at most 63 characters"
        ));
    }
    if !is_dns_subdomain(name) {
        return Err(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.', at most 253 characters"
        ));
    }
    Ok(())
}

/// Formats a kind for messages. The group is included unless it is the core group.
pub(crate) fn group_kind(group: &str, kind: &str) -> String {
    if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{group}/{kind}")
    }
}

/// Returns true if a header or query parameter may have this name: an RFC 9110 token of at most 256
/// characters.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Fails if the name of a header or query parameter is invalid.
pub(crate) fn check_token(at: Arguments<'_>, name: &str) -> Result<(), String> {
    if is_token(name) {
        return Ok(());
    }
    Err(format!(
        "{at} {name:?} is not a token of at most 256 letters, digits and !#$%&'*+-.^_`|~"
    ))
}

/// Returns true if the text is allowed as a header value: it has no control characters except tabs.
pub(crate) fn is_field_value(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !c.is_control())
}

/// Returns true if a path consists of allowed characters and valid escapes.
pub(crate) fn is_path(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let fine = match byte {
            b'%' => {
                let mut hex = || bytes.next().is_some_and(|b| b.is_ascii_hexdigit());
                hex() && hex()
            }
            b => b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&b),
        };
        if !fine {
            return false;
        }
    }
    true
}

/// Fails if the path in `field` has invalid characters or escapes.
pub(crate) fn check_path(field: &str, path: &str) -> Result<(), String> {
    if is_path(path) {
        return Ok(());
    }
    Err(format!(
        "{field} {path:?} has characters that a path must not have; escape them"
    ))
}

/// Returns a port number, or `None` if it is out of range.
pub(crate) fn port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}

/// Domain of the keys of Sesame's labels, annotations and options. Keys in its subdomains also
/// belong to Sesame.
const DOMAIN: &str = "projectsesame.io";

/// Returns true if a key is in Sesame's domain or a subdomain, in upper or lower case.
pub(crate) fn is_ours(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    let domain = domain.to_ascii_lowercase();
    domain
        .strip_suffix(DOMAIN)
        .is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_values_paths_and_ports() {
        assert!(
            is_token("X-Request-Id") && !is_token("") && !is_token(":path") && !is_token("a b")
        );
        assert!(is_field_value("a\tb é") && !is_field_value("a\nb") && !is_field_value("\0"));
        assert!(is_path("/a%20b/c") && !is_path("/a%2") && !is_path("/a?b") && !is_path("/é"));
        assert_eq!(
            (port(0), port(65_535), port(65_536), port(-1)),
            (None, Some(65_535), None, None)
        );
    }
}
