//! Hostnames of listeners and routes: validation, coverage, intersection and specificity.
//!
//! A hostname has no scheme or port. A wildcard stands for one or more labels (Gateway API,
//! `HTTPRouteSpec.hostnames`).

use std::borrow::Cow;
use std::net::IpAddr;

use sesame_proto::dns_name::is_dns_label;

/// A set of lower-case host names: one host, all hosts with a suffix, or all hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hostname(String);

impl Hostname {
    /// Returns the hostname that covers all hosts.
    pub(crate) fn any() -> Self {
        Self(String::new())
    }

    /// Parses a hostname; an empty string means all hosts. The error states the expected format.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::any());
        }
        check(text.strip_prefix("*.").unwrap_or(text), text)?;
        Ok(Self(text.to_owned()))
    }

    /// Parses a hostname leniently, to find out which requests an invalid route must reject.
    /// Accepts everything that a client may send as a host: upper case, IP addresses and `_`. Also
    /// accepts `*` for all hosts. Returns `None` if no request can have this host.
    pub(crate) fn meant(text: &str) -> Option<Self> {
        let text = meant(text);
        let name = text.strip_prefix("*.").unwrap_or(&text).replace('_', "-");
        let is_name = name.len() <= 253 && name.split('.').all(is_dns_label);
        (text.is_empty() || is_name).then(|| Self(text.into_owned()))
    }

    /// Returns the hostname in the API's notation. An empty string means all hosts.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hostname as the domain of a virtual host, where `*` means all hosts.
    pub(crate) fn domain(&self) -> &str {
        if self.0.is_empty() { "*" } else { &self.0 }
    }

    /// Returns a map key: an exact name itself, a wildcard without its `*`, or an empty string for
    /// all hosts. The key of a wider hostname is always a suffix of the key of a narrower one.
    pub(crate) fn key(&self) -> &str {
        self.0.strip_prefix('*').unwrap_or(&self.0)
    }

    /// Returns the keys of this hostname and of all hostnames that cover it, narrowest first.
    pub(crate) fn covering_keys(&self) -> impl Iterator<Item = &str> {
        let key = self.key();
        let dots = key
            .char_indices()
            .skip(1)
            .filter(|(_, c)| *c == '.')
            .filter_map(move |(at, _)| key.get(at..));
        std::iter::once(key)
            .chain(dots)
            .chain((!key.is_empty()).then_some(""))
    }

    /// Returns true if this hostname covers every host that `other` covers.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        covers(&self.0, &other.0)
    }

    /// Returns the hosts that both hostnames cover, or `None` if there are none.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            Some(other.clone())
        } else if other.covers(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// Returns true if the hostname covers exactly one host.
    pub(crate) fn is_exact(&self) -> bool {
        !self.0.is_empty() && !self.0.starts_with('*')
    }

    /// Returns the specificity. Greater values are more specific: exact names rank above wildcards,
    /// then longer names above shorter ones.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        (self.is_exact(), self.0.len())
    }
}

/// Returns true if `wide` covers every host that `narrow` covers. Both are in the API's notation.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_prefix('*') {
        Some(suffix) => {
            let key = narrow.strip_prefix('*').unwrap_or(narrow);
            key.ends_with(suffix) && (key.len() > suffix.len() || narrow.starts_with('*'))
        }
        None => wide.is_empty() || wide == narrow,
    }
}

/// Normalizes a hostname to what its author may have meant. See [`Hostname::meant`].
pub(crate) fn meant(text: &str) -> Cow<'_, str> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text == "*" {
        Cow::Borrowed("")
    } else if text.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// Checks that a hostname has no wildcard and is otherwise valid, as redirects and rewrites require
/// (`PreciseHostname`).
pub(crate) fn check_precise(text: &str) -> Result<(), String> {
    check(text, text)
}

fn check(name: &str, original: &str) -> Result<(), String> {
    if name.parse::<IpAddr>().is_ok() {
        return Err(format!(
            "{original:?} is an IP address; a DNS name is expected"
        ));
    }
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(format!(
            "{original:?} has upper-case letters; write it in lower case"
        ));
    }
    if name.len() > 253 || !name.split('.').all(is_dns_label) {
        return Err(format!(
            "{original:?} is not a DNS name (labels of a-z, 0-9 and '-', at most 253 characters; a \
             wildcard only as the whole first label)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostname_normalizes_to_what_clients_request() {
        let meant = |text: &str| Hostname::meant(text).map(|hostname| hostname.0);
        for (text, expected) in [
            ("a.test", Some("a.test")),
            ("*.A.test.", Some("*.a.test")),
            ("a_b.test", Some("a_b.test")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("*", Some("")),
            ("", Some("")),
            ("a..test", None),
            ("a.*.test", None),
            ("a/b", None),
        ] {
            assert_eq!(meant(text).as_deref(), expected, "{text}");
        }
    }

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("valid")
    }

    #[test]
    fn valid_and_invalid_hostnames() {
        for good in ["", "a", "example.com", "*.example.com", "1.example"] {
            assert!(Hostname::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in [
            "*",
            "*.",
            "a.*.b",
            "*a.b",
            "1.2.3.4",
            "::1",
            "*.1.2.3.4",
            "a..b",
            ".a",
            "a.",
            "a_b",
            "-a",
            "a:80",
            "a b",
            "é.com",
            "EXAMPLE.com",
            "*.Example.com",
            &long,
        ] {
            assert!(Hostname::parse(bad).is_err(), "{bad}");
        }
        let why = Hostname::parse("*.Example.com").expect_err("invalid");
        assert!(why.contains("lower case"), "{why}");
    }

    #[test]
    fn intersections() {
        for (a, b, both) in [
            ("", "", Some("")),
            ("", "*.x.com", Some("*.x.com")),
            ("a.x.com", "a.x.com", Some("a.x.com")),
            ("a.x.com", "*.x.com", Some("a.x.com")),
            ("a.b.x.com", "*.x.com", Some("a.b.x.com")),
            ("*.b.x.com", "*.x.com", Some("*.b.x.com")),
            ("*.x.com", "*.x.com", Some("*.x.com")),
            ("x.com", "*.x.com", None),
            ("ax.com", "*.x.com", None),
            ("a.x.com", "b.x.com", None),
            ("*.x.com", "*.y.com", None),
        ] {
            let both = both.map(host);
            assert_eq!(host(a).intersect(&host(b)), both, "{a} and {b}");
            assert_eq!(host(b).intersect(&host(a)), both, "{b} and {a}");
        }
    }

    #[test]
    fn covering_keys_are_those_of_all_wider_hostnames() {
        let keys: Vec<String> = host("a.b.c").covering_keys().map(str::to_owned).collect();
        assert_eq!(keys, ["a.b.c", ".b.c", ".c", ""]);
        let keys: Vec<String> = host("*.b.c").covering_keys().map(str::to_owned).collect();
        assert_eq!(keys, [".b.c", ".c", ""]);
        assert_eq!(host("").covering_keys().count(), 1);
        assert_eq!(host("*.b.c").key(), ".b.c");
    }
}
