//! Names in a snapshot, such as `HTTPRoute/namespace/name/rules/0/matches/1`.
//!
//! Only this module parses such names. It accepts only canonical names, because untrusted reports
//! also contain names.

use std::fmt;

use crate::dns_name::{is_dns_label, is_dns_subdomain};

/// Origin of a part of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provenance<'a> {
    /// Kind, as in the API.
    pub kind: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Part of the object.
    pub part: ObjectPart<'a>,
}

/// Part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectPart<'a> {
    /// The whole object.
    Whole,
    /// `listeners/NAME` of a Gateway, a ListenerSet, or a `TLSHost` (the TLS hostnames of
    /// HTTPProxies and Ingresses).
    Listener(&'a str),
    /// `rules/RULE` of a TLS, TCP or UDP route.
    Rule(usize),
    /// `rules/RULE/matches/INDEX` of an HTTP or gRPC route.
    Match {
        /// Index of the rule, from 0.
        rule: usize,
        /// Index of the match in its rule, from 0.
        index: usize,
    },
    /// `PORT` of a Service.
    Port {
        /// Port number.
        number: u16,
        /// Distinguishes backends for the same port: `UDP`, or a digest of settings.
        variant: Option<&'a str>,
    },
}

/// Error for invalid names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name in a snapshot; expected Kind/namespace/name, which may be followed by \
    /listeners/NAME, /rules/0, /rules/0/matches/0 or /PORT"
)]
pub struct NotProvenance(String);

impl<'a> Provenance<'a> {
    /// Parses the output of [`Display`](fmt::Display), and rejects any other text.
    pub fn parse(text: &'a str) -> Result<Self, NotProvenance> {
        Self::read(text).ok_or_else(|| NotProvenance(text.to_owned()))
    }

    /// Returns the provenance of the whole object.
    #[must_use]
    pub fn object(self) -> Self {
        Self {
            part: ObjectPart::Whole,
            ..self
        }
    }

    /// Returns the listener's name, if any.
    pub fn listener(&self) -> Option<&'a str> {
        match self.part {
            ObjectPart::Listener(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the rule's index, for a rule or a match.
    pub fn rule(&self) -> Option<usize> {
        match self.part {
            ObjectPart::Rule(rule) | ObjectPart::Match { rule, .. } => Some(rule),
            _ => None,
        }
    }

    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, '/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let named = is_kind && is_dns_label(namespace) && is_dns_subdomain(name);
        let part = parts
            .next()
            .map_or(Some(ObjectPart::Whole), ObjectPart::read)?;
        named.then_some(Self {
            kind,
            namespace,
            name,
            part,
        })
    }
}

impl<'a> ObjectPart<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (first, rest) = match text.split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (text, None),
        };
        match first {
            "listeners" => Some(Self::Listener(rest.filter(|n| is_dns_subdomain(n))?)),
            "rules" => Some(match rest?.split_once("/matches/") {
                Some((rule, index)) => Self::Match {
                    rule: number(rule)?,
                    index: number(index)?,
                },
                None => Self::Rule(number(rest?)?),
            }),
            port => Some(Self::Port {
                number: number(port)?.try_into().ok()?,
                variant: match rest {
                    Some("") => return None,
                    variant => variant,
                },
            }),
        }
    }
}

/// Rejects signs and leading zeros.
fn number(text: &str) -> Option<usize> {
    let printed = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| printed)
}

impl fmt::Display for Provenance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            part,
        } = self;
        write!(f, "{kind}/{namespace}/{name}")?;
        match part {
            ObjectPart::Whole => Ok(()),
            part => write!(f, "/{part}"),
        }
    }
}

/// Empty for a whole object.
impl fmt::Display for ObjectPart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Listener(name) => write!(f, "listeners/{name}"),
            Self::Rule(rule) => write!(f, "rules/{rule}"),
            Self::Match { rule, index } => write!(f, "rules/{rule}/matches/{index}"),
            Self::Port {
                number,
                variant: None,
            } => write!(f, "{number}"),
            Self::Port {
                number,
                variant: Some(variant),
            } => write!(f, "{number}/{variant}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn provenance_parts_are_distinguished() {
        let part = |text| Provenance::parse(text).map(|provenance| provenance.part);
        for (text, expected) in [
            ("Gateway/ns/edge.one", ObjectPart::Whole),
            (
                "Gateway/ns/edge/listeners/http",
                ObjectPart::Listener("http"),
            ),
            ("TCPRoute/ns/r/rules/0", ObjectPart::Rule(0)),
            (
                "HTTPRoute/ns/r/rules/10/matches/2",
                ObjectPart::Match { rule: 10, index: 2 },
            ),
            (
                "Service/ns/s/80",
                ObjectPart::Port {
                    number: 80,
                    variant: None,
                },
            ),
            (
                "Service/ns/s/53/UDP",
                ObjectPart::Port {
                    number: 53,
                    variant: Some("UDP"),
                },
            ),
        ] {
            assert_eq!(part(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_provenance_is_refused() {
        for text in [
            "",
            "Gateway/ns",
            "Gateway//edge",
            "Gateway/ns/",
            "Gateway/ns/../etc",
            "Gateway/a.b/edge",
            "Gateway/-a/edge",
            "Gateway/ns/Edge?x=1",
            "Gateway/ns/edge/",
            "Gateway/ns/edge/listeners",
            "Gateway/ns/edge/listeners/a/b",
            "HTTPRoute/ns/r/rules/+1",
            "HTTPRoute/ns/r/rules/01",
            "HTTPRoute/ns/r/rules/0/matches/",
            "HTTPRoute/ns/r/rules/0/filters/0",
            "Service/ns/s/65536",
            "Service/ns/s/80/",
            "domain a.b of http/80",
        ] {
            let error = Provenance::parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")));
        }
    }

    fn part() -> impl Strategy<Value = (usize, usize, usize, u16, String)> {
        (
            0..6_usize,
            any::<usize>(),
            any::<usize>(),
            any::<u16>(),
            "[a-z0-9]{1,9}",
        )
    }

    proptest! {
        #[test]
        fn printed_provenance_parses_back(
            kind in "[A-Z][A-Za-z]{0,12}",
            namespace in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
            name in "[a-z0-9]{1,9}(\\.[a-z0-9]{1,9}){0,3}",
            (which, rule, index, number, word) in part(),
        ) {
            let part = match which {
                0 => ObjectPart::Whole,
                1 => ObjectPart::Listener(&word),
                2 => ObjectPart::Rule(rule),
                3 => ObjectPart::Match { rule, index },
                4 => ObjectPart::Port { number, variant: None },
                _ => ObjectPart::Port { number, variant: Some(&word) },
            };
            let provenance = Provenance { kind: &kind, namespace: &namespace, name: &name, part };
            let printed = provenance.to_string();
            prop_assert_eq!(Provenance::parse(&printed), Ok(provenance));
        }

        #[test]
        fn parsed_provenance_prints_as_written(text in "([A-Z][a-z]{1,3}|[-.a-z0-9+]{0,4}|rules|matches|listeners|/){0,14}") {
            if let Ok(provenance) = Provenance::parse(&text) {
                prop_assert_eq!(provenance.to_string(), text);
            }
        }
    }
}
