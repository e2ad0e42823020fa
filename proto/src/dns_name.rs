//! Syntax of Kubernetes object names (RFC 1123) and labels.

/// Returns true if the text is a DNS label: 1 to 63 characters from a-z, 0-9 and inner `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Returns true if the text is a DNS subdomain in Kubernetes: at most 253 characters, with labels
/// of any length.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
    bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

/// Returns true if the text is a label value: 1 to 63 letters, digits and inner `-`, `_` and `.`.
pub fn is_label_value(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.len() <= 63
        && text.bytes().next().is_some_and(plain)
        && text.bytes().next_back().is_some_and(plain)
        && text
            .bytes()
            .all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains() {
        let long = "a".repeat(64);
        for (text, label, subdomain) in [
            ("a-0", true, true),
            ("a.b", false, true),
            (&long, false, true),
            ("", false, false),
            ("a..b", false, false),
            ("a.", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("A", false, false),
            ("a_b", false, false),
            (&"a".repeat(254), false, false),
        ] {
            assert_eq!(
                (is_dns_label(text), is_dns_subdomain(text)),
                (label, subdomain),
                "{text}"
            );
        }
    }
}
