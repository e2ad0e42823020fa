//! Request origins, in the form in which the proxy's CSRF protection compares them.

use std::net::Ipv6Addr;

use crate::dns_name::is_dns_label;
use crate::schema::Csrf;

impl Csrf {
    /// Maximum number of additional origins per check.
    pub const MAX_ORIGINS: usize = 16;
    /// HTTP methods that the proxy checks.
    pub const METHODS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

    /// Returns true if the text is `host` or `host:port`, with the host in lower case. `null` is
    /// not an origin, because browsers send it instead of origins that they hide.
    pub fn is_origin(text: &str) -> bool {
        let address = text.strip_prefix('[').and_then(|it| it.split_once(']'));
        let (is_host, port) = if let Some((address, rest)) = address {
            let port = if rest.is_empty() {
                Some(None)
            } else {
                rest.strip_prefix(':').map(Some)
            };
            (address.parse::<Ipv6Addr>().is_ok(), port)
        } else {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            let is_name = host.len() <= 253 && host.split('.').all(is_dns_label);
            (is_name && host != "null", Some(port))
        };
        let is_port = |port: &str| {
            let number = port.parse::<u16>().unwrap_or_default();
            number > 0 && number.to_string() == port
        };
        is_host && port.is_some_and(|port| port.is_none_or(is_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_hosts_with_optional_ports() {
        for origin in [
            "a",
            "a.test",
            "a.test:8443",
            "192.0.2.1:80",
            "[2001:db8::1]",
            "[::1]:8080",
        ] {
            assert!(Csrf::is_origin(origin), "{origin}");
        }
        for other in [
            "",
            "null",
            "null:80",
            "*",
            "*.a.test",
            "A.test",
            "a.test.",
            "a.test:",
            "a.test:0",
            "a.test:080",
            "a.test:+80",
            "a.test:65536",
            "a.test:80:80",
            "https://a.test",
            "a.test/",
            "a@b.test",
            "a,b",
            "::1",
            "[::1",
            "[::1]8080",
            "[::1]:",
            "[a.test]",
        ] {
            assert!(!Csrf::is_origin(other), "{other}");
        }
    }
}
