//! Reads subject alternative names. A peer's certificate must contain at least one of them.
//!
//! If a BackendTLSPolicy has such names or patterns, its hostname is only sent as SNI, and not
//! verified.

use crate::syntax::hostnames::Hostname;
use crate::syntax::{limits, names};
use sesame_kinds::api::{SubjectAltName, SubjectAltNameType};

/// In the object's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AltNames {
    pub(crate) dns_names: Vec<String>,
    pub(crate) uris: Vec<String>,
    /// Each starts with a dot.
    pub(crate) dns_suffixes: Vec<String>,
    /// Each ends with a slash.
    pub(crate) uri_prefixes: Vec<String>,
}

pub(crate) const PATTERNS: &str = "projectsesame.io/subject-alt-name-patterns";

/// Reads patterns such as `*.svc.example.com` and `spiffe://example.com/ns/*`. Errors omit the
/// field's name.
pub(crate) fn read_patterns(value: &str) -> Result<AltNames, String> {
    let mut found = AltNames::default();
    for pattern in entries(value)? {
        found.add_pattern(pattern)?;
    }
    Ok(found)
}

/// Reads a list such as `spiffe://example.com/gateway, *.example.com`. Errors omit the field's
/// name.
pub(crate) fn read_names(value: &str) -> Result<AltNames, String> {
    let mut found = AltNames::default();
    for name in entries(value)? {
        if name.contains('*') {
            found.add_pattern(name)?;
        } else if name.contains("://") {
            check_uri(name).map_err(|why| format!("contains an invalid URI: {}", &why[1..]))?;
            found.uris.push(name.to_owned());
        } else if name.is_empty() {
            // An empty hostname would match every host.
            return Err("contains an empty name; remove the extra comma".to_owned());
        } else {
            Hostname::parse(name).map_err(|why| format!("contains {:?}: {why}", quoted(name)))?;
            found.dns_names.push(name.to_owned());
        }
    }
    Ok(found)
}

fn entries(value: &str) -> Result<Vec<&str>, String> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    limits::entries("", entries.len(), 1..=limits::MAX_SUBJECT_ALT_NAMES)
        .map_err(|why| why.trim_start().to_owned())?;
    Ok(entries)
}

fn quoted(name: &str) -> String {
    name.chars().take(limits::MAX_URI).collect()
}

impl AltNames {
    /// Errors omit the field's name.
    pub(crate) fn add_pattern(&mut self, pattern: &str) -> Result<(), String> {
        let quoted = quoted(pattern);
        if let Some(suffix) = pattern.strip_prefix('*').filter(|it| it.starts_with('.')) {
            Hostname::parse(pattern).map_err(|why| format!("contains {quoted:?}: {why}"))?;
            self.dns_suffixes.push(suffix.to_owned());
        } else if let Some(prefix) = pattern.strip_suffix('*').filter(|it| is_uri_prefix(it)) {
            self.uri_prefixes.push(prefix.to_owned());
        } else {
            return Err(format!(
                "contains {quoted:?}; expected patterns such as \"*.svc.example.com\" or \"spiffe://example.com/ns/*\", with \
                 commas between them"
            ));
        }
        Ok(())
    }

    /// Errors omit the field's name.
    pub(crate) fn add_dns_name(&mut self, name: &str) -> Result<(), String> {
        if name.contains('*') && !name.contains('/') {
            return self.add_pattern(name);
        }
        // An empty hostname would match every host.
        if name.is_empty() {
            return Err("is empty; expected a DNS name".to_owned());
        }
        Hostname::parse(name).map_err(|why| format!("is not valid: {why}"))?;
        self.dns_names.push(name.to_owned());
        Ok(())
    }

    /// Errors omit the field's name.
    pub(crate) fn add_uri(&mut self, uri: &str) -> Result<(), String> {
        if uri.contains('*') && uri.contains('/') {
            return self.add_pattern(uri);
        }
        check_uri(uri).map_err(|why| why.trim_start_matches(".uri ").to_owned())?;
        self.uris.push(uri.to_owned());
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Requires a final slash, because the prefix could otherwise match other authorities or path
/// segments.
fn is_uri_prefix(prefix: &str) -> bool {
    let rest = prefix.split_once("://").map(|(_, rest)| rest);
    let authority = rest.and_then(|rest| rest.split_once('/'));
    prefix.ends_with('/')
        && !prefix.contains('*')
        && authority.is_some_and(|(authority, _)| !authority.is_empty())
        && check_uri(prefix).is_ok()
}

/// The hostname is verified only without `alt_names` and `patterns`. Errors start with the field
/// path relative to `validation`.
pub(crate) fn read(
    hostname: &str,
    alt_names: &[SubjectAltName],
    patterns: Option<AltNames>,
) -> Result<AltNames, String> {
    limits::entries(
        "subjectAltNames",
        alt_names.len(),
        0..=limits::MAX_SUBJECT_ALT_NAMES,
    )?;
    let proves = alt_names.is_empty() && patterns.is_none();
    let mut found = patterns.unwrap_or_default();
    if proves {
        found.dns_names.push(hostname.to_owned());
    }
    for (i, name) in alt_names.iter().enumerate() {
        let at = |why: String| format!("subjectAltNames[{i}]{why}");
        let SubjectAltName {
            type_,
            hostname,
            uri,
        } = name;
        match (type_, hostname.is_empty(), uri.is_empty()) {
            (SubjectAltNameType::Hostname, false, true) => {
                Hostname::parse(hostname).map_err(|why| at(format!(".hostname {why}")))?;
                found.dns_names.push(hostname.clone());
            }
            (SubjectAltNameType::Uri, true, false) => {
                check_uri(uri).map_err(&at)?;
                found.uris.push(uri.clone());
            }
            (SubjectAltNameType::Other(other), ..) => {
                return Err(at(format!(
                    ".type {other:?} is unknown; expected Hostname or URI"
                )));
            }
            _ => {
                return Err(at(format!(
                    ": set only the field that matches type {}",
                    type_.as_str()
                )));
            }
        }
    }
    Ok(found)
}

/// Checks for an absolute URI with an authority, which the API requires.
fn check_uri(uri: &str) -> Result<(), String> {
    limits::max_bytes(".uri", uri, limits::MAX_URI)?;
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    let good = scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    if !good || !names::is_field_value(uri) {
        return Err(format!(
            ".uri {uri:?} is not an absolute URI such as spiffe://example.com/ns/a/sa/b"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(type_: &str, hostname: &str, uri: &str) -> SubjectAltName {
        SubjectAltName {
            type_: type_.into(),
            hostname: hostname.to_owned(),
            uri: uri.to_owned(),
        }
    }

    #[test]
    fn the_hostname_is_verified_only_without_other_names() {
        let only = read("a.test", &[], None).expect("valid");
        assert_eq!(only.dns_names, ["a.test"]);
        let names = [
            name("Hostname", "*.b.test", ""),
            name("URI", "", "spiffe://b/c"),
        ];
        let read = read("a.test", &names, None).expect("valid");
        assert_eq!(
            (read.dns_names, read.uris),
            (vec!["*.b.test".to_owned()], vec!["spiffe://b/c".to_owned()])
        );
    }

    #[test]
    fn invalid_subject_alt_names_are_refused() {
        for bad in [
            name("Hostname", "", ""),
            name("Hostname", "a.test", "spiffe://a"),
            name("Hostname", "A.test", ""),
            name("URI", "a.test", ""),
            name("URI", "", "a.test"),
            name("URI", "", "://a"),
            name("URI", "", "spiffe://a\n"),
            name("Email", "a.test", ""),
        ] {
            assert!(
                read("a.test", std::slice::from_ref(&bad), None).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_list_has_names_and_patterns() {
        let read = read_names("a.test, spiffe://a/b,*.b.test ,spiffe://c/*").expect("valid");
        let expected = AltNames {
            dns_names: vec!["a.test".to_owned()],
            uris: vec!["spiffe://a/b".to_owned()],
            dns_suffixes: vec![".b.test".to_owned()],
            uri_prefixes: vec!["spiffe://c/".to_owned()],
        };
        assert_eq!(read, expected);
        for bad in [
            "",
            "*",
            "A.test",
            "a.test,",
            "://a",
            "spiffe://*",
            "a,b,c,d,e,f",
        ] {
            assert!(read_names(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_are_dns_suffixes_and_uri_prefixes() {
        let patterns =
            read_patterns("*.svc.example.com, spiffe://example.com/ns/*").expect("valid");
        assert_eq!(patterns.dns_suffixes, [".svc.example.com"]);
        assert_eq!(patterns.uri_prefixes, ["spiffe://example.com/ns/"]);
        let with_names = read(
            "a.test",
            &[name("URI", "", "spiffe://b/c")],
            Some(patterns.clone()),
        );
        assert_eq!(with_names.expect("valid").uris, ["spiffe://b/c"]);
        let alone = read("a.test", &[], Some(patterns)).expect("valid");
        assert!(alone.dns_names.is_empty(), "the hostname is not verified");
        for bad in [
            "",
            "*",
            "*.",
            "a.test",
            "*svc",
            "*.A.test",
            "a.*.test",
            "spiffe://*",
            "spiffe:///*",
            "spiffe://example.com*",
            "spiffe://example.com/*/sa/*",
            "spiffe://example.com/ns*",
            "*.a.test,,*.b.test",
        ] {
            assert!(read_patterns(bad).is_err(), "{bad:?}");
        }
    }
}
