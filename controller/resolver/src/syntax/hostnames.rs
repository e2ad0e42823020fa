//! Hostnames of listeners and routes. A wildcard stands for one or more labels (Gateway API,
//! `HTTPRouteSpec.hostnames`).

use std::borrow::Cow;
use std::net::IpAddr;

use sesame_proto::dns_name::is_dns_label;

/// One host, all hosts with a suffix, or all hosts. Always lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hostname(String);

impl Hostname {
    pub(crate) fn any() -> Self {
        Self(String::new())
    }

    /// An empty string means all hosts.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::any());
        }
        check(text.strip_prefix("*.").unwrap_or(text), text)?;
        Ok(Self(text.to_owned()))
    }

    /// Parses leniently, to determine for which hosts an invalid route must reject requests.
    /// Returns `None` if no client can send such a host.
    pub(crate) fn meant(text: &str) -> Option<Self> {
        let text = meant(text);
        let name = text.strip_prefix("*.").unwrap_or(&text).replace('_', "-");
        let is_name = name.len() <= 253 && name.split('.').all(is_dns_label);
        (text.is_empty() || is_name).then(|| Self(text.into_owned()))
    }

    /// An empty string means all hosts.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// `*` means all hosts.
    pub(crate) fn domain(&self) -> &str {
        if self.0.is_empty() { "*" } else { &self.0 }
    }

    /// Returns the hostname without a wildcard's `*`. A wider hostname's key is a suffix of
    /// narrower hostnames' keys.
    pub(crate) fn key(&self) -> &str {
        self.0.strip_prefix('*').unwrap_or(&self.0)
    }

    /// Returns the keys of all hostnames that cover `self`, narrowest first.
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

    pub(crate) fn covers(&self, other: &Self) -> bool {
        covers(&self.0, &other.0)
    }

    /// Returns `None` if the hostnames have no host in common.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            Some(other.clone())
        } else if other.covers(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    pub(crate) fn is_exact(&self) -> bool {
        !self.0.is_empty() && !self.0.starts_with('*')
    }

    /// Greater values are more specific: exact names first, then longer names.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        (self.is_exact(), self.0.len())
    }
}

/// Both hostnames are in the API's notation.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_prefix('*') {
        Some(suffix) => {
            let key = narrow.strip_prefix('*').unwrap_or(narrow);
            key.ends_with(suffix) && (key.len() > suffix.len() || narrow.starts_with('*'))
        }
        None => wide.is_empty() || wide == narrow,
    }
}

/// See [`Hostname::meant`].
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

/// Redirects and rewrites require a hostname without a wildcard (`PreciseHostname`).
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
    fn hostname_normalizes_to_requested_form() {
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
