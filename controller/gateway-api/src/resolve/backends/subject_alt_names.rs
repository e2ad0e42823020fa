//! Subject alternative names, of which a backend's certificate must have one (`BackendTLSPolicyValidation`).
//!
//! With `subjectAltNames`, the hostname is the server name only, and proves nothing.

use crate::api::{SubjectAltName, SubjectAltNameType};
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::{limits, names};

/// The names, in the object's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) dns_names: Vec<String>,
    pub(crate) uris: Vec<String>,
}

/// Reads the names; the error starts with the field below `validation`.
pub(crate) fn read(hostname: &str, alt_names: &[SubjectAltName]) -> Result<Names, String> {
    limits::entries(
        "subjectAltNames",
        alt_names.len(),
        0..=limits::MAX_SUBJECT_ALT_NAMES,
    )?;
    let mut found = Names::default();
    if alt_names.is_empty() {
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
                    ": exactly the member that type {} names must be set",
                    type_.as_str()
                )));
            }
        }
    }
    Ok(found)
}

/// An absolute URI with an authority, as the API's pattern wants it.
fn check_uri(uri: &str) -> Result<(), String> {
    limits::characters(".uri", uri, limits::MAX_URI)?;
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
        let only = read("a.test", &[]).expect("valid");
        assert_eq!(only.dns_names, ["a.test"]);
        let names = [
            name("Hostname", "*.b.test", ""),
            name("URI", "", "spiffe://b/c"),
        ];
        let read = read("a.test", &names).expect("valid");
        assert_eq!(
            (read.dns_names, read.uris),
            (vec!["*.b.test".to_owned()], vec!["spiffe://b/c".to_owned()])
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
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
                read("a.test", std::slice::from_ref(&bad)).is_err(),
                "{bad:?}"
            );
        }
    }
}
