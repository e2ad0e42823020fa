//! Reads a listener's `tls.options`. Keys of other projects have no effect.
//!
//! A listener with an invalid option is not served, because the option may be security-relevant.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::dns_name::is_dns_subdomain;
use sesame_proto::schema::TlsTermination;
use sesame_proto::schema::tls_termination::{ClientMode, Version};
use sesame_proto::tls_parameters::{
    CIPHER_SUITES, KEY_EXCHANGE_GROUPS, POST_QUANTUM_GROUP, is_application_protocol,
};

use crate::syntax::limits;
use crate::syntax::names::is_ours;
use crate::tls::certificate_source::{CertificateSource, LISTENER_OPTION};
use crate::tls::private_keys::KeyKind;
use crate::tls::subject_alt_names::{self, AltNames};
use sesame_kinds::api::{ListenerTls, Protocol, TlsMode};

pub(crate) const MIN_VERSION: &str = "projectsesame.io/min-version";
pub(crate) const MAX_VERSION: &str = "projectsesame.io/max-version";
pub(super) const SUITES: &str = "projectsesame.io/cipher-suites";
pub(super) const GROUPS: &str = "projectsesame.io/key-exchange-groups";
const ALPN: &str = "projectsesame.io/alpn";
pub(super) const TICKET_KEYS: &str = "projectsesame.io/session-ticket-keys";
const CLIENT_NAMES: &str = "projectsesame.io/client-subject-alt-names";
const HTTP_PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];
const VERSIONS: [(&str, Version); 2] = [("1.2", Version::Tls12), ("1.3", Version::Tls13)];
/// Maximum length of a key or value in messages, in characters.
const MAX_REPORTED: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    min_version: Version,
    max_version: Version,
    cipher_suites: Vec<String>,
    key_exchange_groups: Vec<String>,
    alpn: Vec<String>,
    /// Secret in the namespace of the object that defines the listener.
    pub(super) session_ticket_keys: Option<String>,
    client_names: AltNames,
    source: CertificateSource,
}

impl TlsOptions {
    /// Also returns a message for each invalid key or value.
    pub(super) fn read(protocol: &Protocol, tls: &ListenerTls) -> (Self, Vec<String>) {
        let ListenerTls {
            mode,
            certificate_refs: _,
            options,
        } = tls;
        let mut read = Self::default();
        let mut faults = Vec::new();
        faults.extend(
            limits::entries("tls.options", options.len(), 0..=limits::MAX_TLS_OPTIONS).err(),
        );
        for (key, value) in options.iter().take(limits::MAX_TLS_OPTIONS) {
            if !is_ours(key) {
                continue;
            }
            let outcome = if *mode == Some(TlsMode::Passthrough) {
                Err(
                    "has no effect with mode Passthrough, because the backend terminates TLS; \
                    remove it"
                        .to_owned(),
                )
            } else {
                read.set(protocol, key, value)
            };
            faults.extend(
                outcome
                    .err()
                    .map(|why| format!("tls.options {:?}: {why}", excerpt(key))),
            );
        }
        if read.min_version > read.max_version && read.max_version != Version::Unset {
            faults.push(format!(
                "tls.options {MIN_VERSION:?} is newer than {MAX_VERSION:?}: no client could connect"
            ));
        }
        if read.max_version == Version::Tls12 && read.key_exchange_groups == [POST_QUANTUM_GROUP] {
            faults.push(format!(
                "tls.options {GROUPS:?} has no group for TLS 1.2, to which {MAX_VERSION:?} limits \
                clients: no client could connect"
            ));
        }
        (read, faults)
    }

    /// The caller prefixes errors with `tls.options x: `.
    fn set(&mut self, protocol: &Protocol, key: &str, value: &str) -> Result<(), String> {
        match key {
            MIN_VERSION => self.min_version = version(value)?,
            MAX_VERSION => self.max_version = version(value)?,
            SUITES => self.cipher_suites = known(value, &CIPHER_SUITES)?,
            GROUPS => self.key_exchange_groups = known(value, &KEY_EXCHANGE_GROUPS)?,
            ALPN => {
                self.alpn = list(value, limits::MAX_ALPN, |name| match protocol {
                    Protocol::Https if !HTTP_PROTOCOLS.contains(&name) => {
                        Err(one_of(&HTTP_PROTOCOLS))
                    }
                    _ if !is_application_protocol(name) => {
                        Err("the name of an application protocol, such as \"mqtt\"".to_owned())
                    }
                    _ => Ok(()),
                })?;
            }
            TICKET_KEYS => {
                if !is_dns_subdomain(value) {
                    return Err(format!("{:?} is not the name of a Secret", excerpt(value)));
                }
                self.session_ticket_keys = Some(value.to_owned());
            }
            CLIENT_NAMES if *protocol != Protocol::Https => {
                return Err(format!(
                    "has no effect with protocol {protocol}, whose clients are not asked for a \
                    certificate; expected HTTPS"
                ));
            }
            CLIENT_NAMES => self.client_names = subject_alt_names::read_names(value)?,
            LISTENER_OPTION => {
                self.source = CertificateSource::named(value).ok_or_else(|| {
                    let words = one_of(&CertificateSource::WORDS);
                    format!("{:?} is not {words}", excerpt(value))
                })?;
            }
            _ => {
                return Err(format!(
                    "is unknown; expected {}",
                    one_of(&[
                        MIN_VERSION,
                        MAX_VERSION,
                        SUITES,
                        GROUPS,
                        ALPN,
                        TICKET_KEYS,
                        CLIENT_NAMES,
                        LISTENER_OPTION
                    ])
                ));
            }
        }
        Ok(())
    }

    pub(super) fn source(&self) -> CertificateSource {
        self.source
    }

    /// The caller sets the session ticket keys, because they are in a Secret.
    pub(super) fn apply(self, termination: &mut TlsTermination) {
        let Self {
            min_version,
            max_version,
            cipher_suites,
            key_exchange_groups,
            alpn,
            session_ticket_keys: _,
            client_names,
            source: _,
        } = self;
        let AltNames {
            dns_names,
            uris,
            dns_suffixes,
            uri_prefixes,
        } = client_names;
        termination.client_dns_names = dns_names;
        termination.client_uris = uris;
        termination.client_dns_suffixes = dns_suffixes;
        termination.client_uri_prefixes = uri_prefixes;
        termination.min_version = min_version.into();
        termination.max_version = max_version.into();
        termination.cipher_suites = cipher_suites;
        termination.key_exchange_groups = key_exchange_groups;
        termination.alpn = alpn;
    }

    /// Returns an error if client names are restricted but client certificates are not verified.
    pub(super) fn unverified_names(&self, termination: &TlsTermination) -> Option<String> {
        let TlsTermination {
            client_trust_bundle,
            ..
        } = termination;
        let why = if self.client_names.is_empty() {
            return None;
        } else if client_trust_bundle.is_empty() {
            "clients are not asked for a certificate on this port; set spec.tls.frontend of the \
            Gateway to the clients' CA certificates"
        } else if termination.client_mode() != ClientMode::Required {
            "clients without a valid certificate are allowed on this port (AllowInsecureFallback); expected AllowValidOnly"
        } else {
            return None;
        };
        Some(format!("tls.options {CLIENT_NAMES:?}: {why}"))
    }

    /// Returns a warning if the cipher suites have no effect, or support none of these keys.
    pub(super) fn advice(&self, keys: &BTreeSet<KeyKind>) -> Option<String> {
        if self.cipher_suites.is_empty() {
            return None;
        }
        if self.min_version == Version::Tls13 {
            return Some(format!(
                "tls.options {SUITES:?} has no effect, because {MIN_VERSION:?} requires TLS 1.3, \
                whose cipher suites are fixed"
            ));
        }
        let fits = |kind: &KeyKind| {
            let part = kind.in_suites();
            self.cipher_suites.iter().any(|name| name.contains(part))
        };
        let kinds: Vec<String> = keys.iter().map(ToString::to_string).collect();
        (!keys.is_empty() && !keys.iter().any(fits)).then(|| {
            format!(
                "tls.options {SUITES:?} has no cipher suite for a key that is {}: clients of TLS \
                1.2 cannot connect",
                kinds.join(" or ")
            )
        })
    }
}

/// Returns the name of the Secret with session ticket keys. The name is not validated.
pub fn session_ticket_keys(options: &BTreeMap<String, String>) -> Option<&str> {
    options.get(TICKET_KEYS).map(String::as_str)
}

/// Options of other projects have no effect.
pub(super) fn of_others(options: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let all = options.iter().map(|(key, value)| (&**key, &**value));
    all.filter(|(key, _)| !is_ours(key))
}

fn version(value: &str) -> Result<Version, String> {
    let found = VERSIONS.iter().find(|(name, _)| *name == value);
    found.map(|(_, version)| *version).ok_or_else(|| {
        let names = VERSIONS.map(|(name, _)| name);
        format!("{:?} is not {}", excerpt(value), one_of(&names))
    })
}

/// `check` validates each part of the comma-separated list.
fn list(
    value: &str,
    most: usize,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    let mut parts: Vec<String> = Vec::new();
    for part in value.split(',') {
        let part = part.trim_matches([' ', '\t']);
        check(part).map_err(|expected| format!("{:?} is not {expected}", excerpt(part)))?;
        if parts.iter().any(|before| before == part) {
            return Err(format!("{part:?} is listed twice"));
        }
        if parts.len() == most {
            return Err(format!("has more than {most} entries"));
        }
        parts.push(part.to_owned());
    }
    Ok(parts)
}

/// Each part of the comma-separated list must be in `names`.
fn known(value: &str, names: &[&str]) -> Result<Vec<String>, String> {
    list(value, names.len(), |name| {
        let is_known = names.contains(&name);
        is_known.then_some(()).ok_or_else(|| one_of(names))
    })
}

fn one_of(names: &[&str]) -> String {
    match names {
        [one, other] => format!("{one} or {other}"),
        names => format!("one of {}", names.join(", ")),
    }
}

fn excerpt(value: &str) -> String {
    value.chars().take(MAX_REPORTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(protocol: &Protocol, mode: TlsMode, pairs: &[(&str, &str)]) -> (TlsOptions, String) {
        let tls = ListenerTls {
            mode: Some(mode),
            certificate_refs: Vec::new(),
            options: pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let (read, faults) = TlsOptions::read(protocol, &tls);
        (read, faults.join("; "))
    }

    #[test]
    fn every_key_sets_its_parameter() {
        let (read, faults) = options(
            &Protocol::Https,
            TlsMode::Terminate,
            &[
                (MIN_VERSION, "1.2"),
                (MAX_VERSION, "1.3"),
                (
                    SUITES,
                    "ECDHE-RSA-AES128-SHA, ECDHE-ECDSA-AES128-GCM-SHA256",
                ),
                (GROUPS, "X25519MLKEM768, P-256"),
                (ALPN, "http/1.1,h2"),
                (CLIENT_NAMES, "a.test,spiffe://a.test/*"),
                (LISTENER_OPTION, "host"),
                ("example.com/min-version", "1.0"),
                ("notprojectsesame.io/min-version", "1.0"),
            ],
        );
        assert_eq!(faults, "");
        assert_eq!(read.source(), CertificateSource::Host);
        let mut termination = TlsTermination::default();
        read.apply(&mut termination);
        let expected = TlsTermination {
            min_version: Version::Tls12.into(),
            max_version: Version::Tls13.into(),
            cipher_suites: ["ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES128-GCM-SHA256"]
                .map(str::to_owned)
                .to_vec(),
            key_exchange_groups: ["X25519MLKEM768", "P-256"].map(str::to_owned).to_vec(),
            alpn: ["http/1.1", "h2"].map(str::to_owned).to_vec(),
            client_dns_names: vec!["a.test".to_owned()],
            client_uri_prefixes: vec!["spiffe://a.test/".to_owned()],
            ..TlsTermination::default()
        };
        assert_eq!(termination, expected);
    }

    #[test]
    fn invalid_option_error_names_expected_values() {
        let long = "x".repeat(5000);
        let many = format!("a{}", ",a".repeat(5000));
        for (key, value, expected) in [
            (MIN_VERSION, "1.1", "\"1.1\" is not 1.2 or 1.3"),
            (MIN_VERSION, "TLSv1_2", "is not 1.2 or 1.3"),
            (MAX_VERSION, "", "\"\" is not 1.2 or 1.3"),
            (MAX_VERSION, &long, "is not 1.2 or 1.3"),
            (
                SUITES,
                "AES128-SHA",
                "\"AES128-SHA\" is not one of ECDHE-ECDSA-AES128-GCM-SHA256, ",
            ),
            (SUITES, "ECDHE-RSA-AES128-SHA,", "\"\" is not one of"),
            (
                SUITES,
                "ECDHE-RSA-AES128-SHA,ECDHE-RSA-AES128-SHA",
                "is listed twice",
            ),
            (
                GROUPS,
                "x25519",
                "\"x25519\" is not one of X25519MLKEM768, X25519,",
            ),
            (GROUPS, "P-256,P-256", "is listed twice"),
            (ALPN, "h2,mqtt", "\"mqtt\" is not h2 or http/1.1"),
            (ALPN, &many, "\"a\" is not h2 or http/1.1"),
            (LISTENER_OPTION, "file", "\"file\" is not secret or host"),
            (
                CLIENT_NAMES,
                "spiffe://example.com*",
                "expected patterns such as",
            ),
            (CLIENT_NAMES, "A.test", "contains \"A.test\": "),
            (
                "projectsesame.io/min-versions",
                "1.2",
                "is unknown; expected one of projectsesame.io/min-version, ",
            ),
            (
                TICKET_KEYS,
                "Other/keys",
                "\"Other/keys\" is not the name of a Secret",
            ),
            (
                "tls.projectsesame.io/min-version",
                "1.2",
                "is unknown; expected one of",
            ),
            (
                "ProjectSesame.io/min-version",
                "1.3",
                "is unknown; expected one of",
            ),
        ] {
            let (_, faults) = options(&Protocol::Https, TlsMode::Terminate, &[(key, value)]);
            assert!(faults.contains(expected), "{key} {value:.20}: {faults}");
            assert!(faults.len() < 600, "{faults}");
        }
        let both = [(MIN_VERSION, "1.3"), (MAX_VERSION, "1.2")];
        let (_, faults) = options(&Protocol::Https, TlsMode::Terminate, &both);
        assert!(faults.contains("no client could connect"), "{faults}");
        let unsupported = [(MAX_VERSION, "1.2"), (GROUPS, "X25519MLKEM768")];
        let (_, faults) = options(&Protocol::Https, TlsMode::Terminate, &unsupported);
        assert!(faults.contains("no group for TLS 1.2"), "{faults}");
        let (_, faults) = options(
            &Protocol::Tls,
            TlsMode::Passthrough,
            &[(MIN_VERSION, "1.3")],
        );
        assert!(faults.contains("mode Passthrough"), "{faults}");
        let keys: Vec<String> = (0..17).map(|n| format!("example.com/{n}")).collect();
        let many: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "")).collect();
        let (_, faults) = options(&Protocol::Https, TlsMode::Terminate, &many);
        assert!(faults.contains("tls.options has 17 entries"), "{faults}");
    }

    #[test]
    fn a_tls_listener_may_offer_any_protocol() {
        let (read, faults) = options(&Protocol::Tls, TlsMode::Terminate, &[(ALPN, "mqtt, x-1")]);
        assert_eq!(
            (read.alpn.as_slice(), &*faults),
            (&["mqtt".to_owned(), "x-1".to_owned()][..], "")
        );
        let names = [(CLIENT_NAMES, "a.test")];
        let (_, faults) = options(&Protocol::Tls, TlsMode::Terminate, &names);
        assert!(faults.contains("expected HTTPS"), "{faults}");
        let (_, faults) = options(&Protocol::Tls, TlsMode::Terminate, &[(ALPN, "a b")]);
        assert!(faults.contains("application protocol"), "{faults}");
    }
}
