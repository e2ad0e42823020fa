//! Checks `spec.acme`.

use std::net::Ipv6Addr;

use sesame_acme::{AcmeIssuer, ChallengeMethod, LETS_ENCRYPT};

use super::clients::unknown;
use super::edge::excerpt;
use crate::tls::pem;
use sesame_kinds::api::{AcmeChallenge, AcmeSettings, OpenEnum as _};

/// As in the schema.
const MAX_DIRECTORY: usize = 2048;
/// As in the schema.
const MAX_EMAIL: usize = 254;
/// As in the schema.
const MAX_BUNDLE: usize = 65_536;

/// Each error starts with the name of the field in `spec.acme`.
pub(super) fn faults(settings: &AcmeSettings) -> Vec<String> {
    let AcmeSettings {
        directory,
        email,
        terms_agreed: _,
        challenge,
        ca_bundle,
    } = settings;
    let mut faults = Vec::new();
    if let Some(directory) = directory.as_deref().filter(|it| !is_directory(it)) {
        faults.push(format!(
            "directory: {:?}: expected a URL such as {LETS_ENCRYPT}",
            excerpt(directory)
        ));
    }
    if let Some(email) = email.as_deref().filter(|it| !is_email(it)) {
        faults.push(format!(
            "email: {:?}: expected an address such as admin@example.com",
            excerpt(email)
        ));
    }
    if let Some((value, words)) = challenge.as_ref().and_then(AcmeChallenge::unknown) {
        faults.push(unknown("challenge", value, words));
    }
    match ca_bundle.as_deref() {
        Some(text) if text.len() > MAX_BUNDLE => faults.push(format!(
            "caBundle: {} bytes; expected at most {MAX_BUNDLE}",
            text.len()
        )),
        Some(text) => {
            let wrong = pem::certificates(text.as_bytes()).err();
            faults.extend(wrong.map(|why| format!("caBundle: {why}")));
        }
        None => {}
    }
    faults
}

/// Returns `None` unless the terms of service are agreed to. Validation has already rejected
/// invalid settings.
pub(crate) fn issuer(settings: &AcmeSettings) -> Option<AcmeIssuer> {
    let AcmeSettings {
        directory,
        email,
        terms_agreed,
        challenge,
        ca_bundle,
    } = settings;
    (*terms_agreed == Some(true)).then(|| AcmeIssuer {
        directory: directory.as_deref().unwrap_or(LETS_ENCRYPT).to_owned(),
        email: email.clone(),
        method: match challenge {
            Some(AcmeChallenge::Dns01) => ChallengeMethod::Dns01,
            _ => ChallengeMethod::Http01,
        },
        ca_bundle: ca_bundle.clone(),
    })
}

/// Rejects whatever the client's parser rejects, and credentials.
fn is_directory(url: &str) -> bool {
    let is_plain = url
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/?[]!$&'()*+,;=%".contains(&byte));
    let rest = url.strip_prefix("https://");
    let (authority, path) = rest.map_or(("", ""), |rest| {
        rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))
    });
    is_plain && url.len() <= MAX_DIRECTORY && is_authority(authority) && !path.contains(['[', ']'])
}

fn is_authority(authority: &str) -> bool {
    let (host, port) = match authority.rfind(':') {
        Some(at) if !authority.ends_with(']') => authority.split_at(at),
        _ => (authority, ":443"),
    };
    let is_port = port.get(1..).and_then(|port| port.parse::<u16>().ok());
    let is_name = |host: &str| {
        let mut bytes = host.bytes();
        !host.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = address.map_or_else(|| is_name(host), |it| it.parse::<Ipv6Addr>().is_ok());
    is_host && is_port.is_some_and(|port| port > 0)
}

fn is_email(text: &str) -> bool {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b",<>?:".contains(&byte));
    let parts = text.split_once('@');
    is_plain
        && text.len() <= MAX_EMAIL
        && parts.is_some_and(|(local, domain)| !local.is_empty() && domain.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acme_faults_name_field_and_value() {
        let fault = |settings: AcmeSettings| faults(&settings).join("; ");
        for url in [
            "http://ca.test/directory",
            "https://",
            "https://a b",
            "https://u@ca.test/",
            "https://<your-ca>/directory",
            "https://ca.test/<name>",
            "https://ca.test:/",
            "https://ca.test:70000/",
            "https://a:b:1/",
            "https://[::1/",
            "https://%41/",
        ] {
            let settings = AcmeSettings {
                directory: Some(url.to_owned()),
                ..AcmeSettings::default()
            };
            let why = fault(settings);
            assert!(
                why.starts_with(&format!("directory: {url:?}: expected")),
                "{why}"
            );
        }
        let settings = AcmeSettings {
            email: Some("admin".to_owned()),
            challenge: Some("TLSALPN01".into()),
            ca_bundle: Some("x".to_owned()),
            ..AcmeSettings::default()
        };
        let why = fault(settings);
        for words in [
            "email: \"admin\"",
            "challenge: \"TLSALPN01\" is not one of",
            "caBundle: ",
        ] {
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn directory_is_https_url_with_host() {
        for url in [
            LETS_ENCRYPT,
            "https://ca.test",
            "https://ca.test?a=b",
            "https://localhost:14000/dir",
            "https://192.0.2.1:9000/acme/acme/directory",
            "https://[2001:db8::1]/dir",
            "https://[2001:db8::1]:14000/dir",
        ] {
            assert!(is_directory(url), "{url}");
        }
    }

    #[test]
    fn issuer_needs_agreement_to_terms() {
        let mut settings = AcmeSettings::default();
        assert_eq!(issuer(&settings), None);
        settings.terms_agreed = Some(true);
        assert_eq!(issuer(&settings).unwrap().directory, LETS_ENCRYPT);
    }
}
