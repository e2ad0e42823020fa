//! Settings of logins at OpenID Connect providers, as the proxy accepts them.

use std::net::Ipv6Addr;

use crate::dns_name::is_dns_subdomain;
use crate::schema::OidcLogin;

impl OidcLogin {
    /// Maximum number of hostnames, scopes and API paths, each.
    pub const MAX_ENTRIES: usize = 16;
    /// Maximum length of a URL, a path, or the client's ID, in bytes.
    pub const MAX_BYTES: usize = 2048;
    /// Maximum number of policies with logins per Gateway, because a proxy watches two files for each.
    pub const MAX_PER_GATEWAY: usize = 32;
    /// Scope that every login requests.
    pub const OPENID: &'static str = "openid";

    const PART: &'static str = "/oidc";

    /// Returns the name of the key pair with the client's secret. `policy` is
    /// `AccessPolicy/namespace/name`.
    pub fn key(policy: &str) -> String {
        format!("{policy}{}", Self::PART)
    }

    /// Returns the policy in a key pair's name, or `None` if the key pair is for another purpose.
    pub fn policy_of(key: &str) -> Option<&str> {
        let policy = key.strip_suffix(Self::PART)?;
        policy.starts_with("AccessPolicy/").then_some(policy)
    }

    /// Returns true if the text is an absolute `https` or `http` URL without a user or fragment.
    pub fn is_endpoint(url: &str) -> bool {
        let rest = url.strip_prefix("https://");
        let Some(rest) = rest.or_else(|| url.strip_prefix("http://")) else {
            return false;
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let is_path = |c: u8| c.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&c);
        url.len() <= Self::MAX_BYTES && is_authority(authority) && path.bytes().all(is_path)
    }

    /// Returns true if the text is a path without escapes, as requests have it after normalization.
    /// The proxy would expand a `%` in the redirect path.
    pub fn is_path(path: &str) -> bool {
        let is_inner = |c: u8| c.is_ascii_alphanumeric() || b"-._~".contains(&c);
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_inner);
        let segments = path.strip_prefix('/');
        path.len() <= Self::MAX_BYTES && segments.is_some_and(|it| it.split('/').all(is_segment))
    }

    /// Returns true if the text is a host name in lower case, which may begin with `*.`.
    pub fn is_hostname(name: &str) -> bool {
        is_dns_subdomain(name.strip_prefix("*.").unwrap_or(name))
    }

    /// Returns true if the text is a scope (RFC 6749, section 3.3).
    pub fn is_scope(scope: &str) -> bool {
        let is_character = |c: u8| c.is_ascii_graphic() && !matches!(c, b'"' | b'\\');
        (1..=Self::MAX_BYTES).contains(&scope.len()) && scope.bytes().all(is_character)
    }

    /// Returns true if the text can be a client's ID.
    pub fn is_client(id: &str) -> bool {
        (1..=Self::MAX_BYTES).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_graphic())
    }
}

/// Returns true if the text is a host with an optional port. The proxy rejects a whole route table
/// because of one URL that it cannot read.
fn is_authority(authority: &str) -> bool {
    let (is_host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        (address.parse::<Ipv6Addr>().is_ok(), port)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(end);
        let is_inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-');
        let is_named = host.bytes().any(|c| c.is_ascii_alphanumeric());
        (is_named && host.bytes().all(is_inner), port)
    };
    let is_port = |port: &str| {
        port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|it| it > 0)
    };
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_absolute_urls_without_users() {
        for (url, expected) in [
            ("https://id.test", true),
            ("http://id.test:8080/a/b?c=d%20e", true),
            ("https://[::1]:8443/token", true),
            ("https://", false),
            ("https:///a", false),
            ("https://id.test:65535", true),
            ("https://id.test:65536/", false),
            ("https://id.test:0/", false),
            ("https://id.test:+80/", false),
            ("https://id.test:/", false),
            ("https://id.test:1:2/", false),
            ("https://:443/", false),
            ("https://[id.test]/", false),
            ("https://[::1/", false),
            ("https://[::1]8443/", false),
            ("https://user@id.test/", false),
            ("https://id.test/#a", false),
            ("https://id.test/a b", false),
            ("https://id.test/\r\n", false),
            ("ftp://id.test/", false),
            ("id.test/token", false),
        ] {
            assert_eq!(OidcLogin::is_endpoint(url), expected, "{url}");
        }
    }

    #[test]
    fn paths_have_no_escapes_or_dot_segments() {
        for (path, expected) in [
            ("/callback", true),
            ("/a/b.c~d", true),
            ("/", false),
            ("", false),
            ("callback", false),
            ("/a//b", false),
            ("/a/", false),
            ("/a/../b", false),
            ("/%REQ(x)%", false),
            ("/a?b", false),
        ] {
            assert_eq!(OidcLogin::is_path(path), expected, "{path}");
        }
    }

    #[test]
    fn only_own_key_pairs_belong_to_policies() {
        let key = OidcLogin::key("AccessPolicy/a/b");
        assert_eq!(OidcLogin::policy_of(&key), Some("AccessPolicy/a/b"));
        for other in ["AccessPolicy/a/b/jwt", "Secret/a/oidc"] {
            assert_eq!(OidcLogin::policy_of(other), None, "{other}");
        }
    }
}
