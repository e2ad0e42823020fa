//! Checks names and values as the API server does, because no API server validates objects from
//! files.

use std::fmt::Arguments;

use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

pub(crate) const CA_KEY: &str = "ca.crt";

/// Checks that neither the namespace nor the name contains a separator, because snapshot names
/// contain both.
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

/// The core group is omitted.
pub(crate) fn group_kind(group: &str, kind: &str) -> String {
    if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{group}/{kind}")
    }
}

/// Returns true if the text is an RFC 9110 token of at most 256 characters.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub(crate) fn check_token(at: Arguments<'_>, name: &str) -> Result<(), String> {
    if is_token(name) {
        return Ok(());
    }
    Err(format!(
        "{at} {name:?} is not a token of at most 256 letters, digits and !#$%&'*+-.^_`|~"
    ))
}

/// Returns true if a header value contains no control characters other than tabs.
pub(crate) fn is_field_value(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !c.is_control())
}

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

pub(crate) fn check_path(field: &str, path: &str) -> Result<(), String> {
    if is_path(path) {
        return Ok(());
    }
    Err(format!(
        "{field} {path:?} contains characters that are invalid in a path; escape them"
    ))
}

/// Returns `None` if the port is out of range.
pub(crate) fn port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}

/// Keys in subdomains also belong to Sesame.
const DOMAIN: &str = "projectsesame.io";

/// Ignores case.
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
