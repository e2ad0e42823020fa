//! TLS parameters that a listener may set.
//!
//! All allowed suites provide forward secrecy: a leaked key does not reveal recorded connections.

/// OpenSSL names of the allowed TLS 1.2 cipher suites. The last four are only for old clients. TLS
/// 1.3 suites cannot be configured.
pub const CIPHER_SUITES: [&str; 10] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
];

/// Names of the allowed key exchange groups. The first one needs TLS 1.3, and protects recorded
/// connections from quantum computers too.
pub const KEY_EXCHANGE_GROUPS: [&str; 4] = [POST_QUANTUM_GROUP, "X25519", "P-256", "P-384"];
/// Group that TLS 1.2 does not have.
pub const POST_QUANTUM_GROUP: &str = "X25519MLKEM768";

/// Size of a session ticket key in bytes.
pub const TICKET_KEY_BYTES: usize = 80;

const MAX_PROTOCOL: usize = 255;

/// Returns true if the cipher suite is allowed.
pub fn is_cipher_suite(name: &str) -> bool {
    CIPHER_SUITES.contains(&name)
}

/// Returns true if the key exchange group is allowed.
pub fn is_key_exchange_group(name: &str) -> bool {
    KEY_EXCHANGE_GROUPS.contains(&name)
}

/// Returns true if the name has 1 to 255 visible ASCII characters and no comma.
pub fn is_application_protocol(name: &str) -> bool {
    (1..=MAX_PROTOCOL).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_forward_secrecy() {
        assert!(CIPHER_SUITES.iter().all(|name| name.starts_with("ECDHE-")));
        assert!(!is_cipher_suite("AES128-SHA"));
        assert!(!is_cipher_suite("ALL"));
    }

    #[test]
    fn application_protocol_names_are_validated() {
        let long = "a".repeat(256);
        for (name, expected) in [
            ("h2", true),
            ("http/1.1", true),
            (&long[1..], true),
            (&long, false),
            ("", false),
            ("a b", false),
            ("a,b", false),
            ("a\0", false),
            ("é", false),
        ] {
            assert_eq!(is_application_protocol(name), expected, "{name:?}");
        }
    }
}
