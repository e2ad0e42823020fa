//! Checks `spec.acme`.

use std::net::Ipv6Addr;

use sesame_acme::{AcmeIssuer, ChallengeMethod, ExternalAccount, LETS_ENCRYPT, MacKey};

use super::clients::unknown;
use super::edge::excerpt;
use super::parameters;
use crate::context::grants::{Referent, Referrer};
use crate::context::{Options, ResolveContext, ResolvedFor};
use crate::syntax::names;
use crate::tls::pem;
use sesame_kinds::api::{
    AcmeChallenge, AcmeExternalAccount, AcmeSecretRef, AcmeSettings, NamespacedName, OpenEnum as _,
};
use sesame_kinds::world::{Kind, World};

/// As in the schema.
const MAX_DIRECTORY: usize = 2048;
/// As in the schema.
const MAX_EMAIL: usize = 254;
/// As in the schema.
const MAX_BUNDLE: usize = 65_536;

/// As in the schema.
const MAX_KEY_ID: usize = 1024;
/// Name of the key in the Secret of an external account.
const SECRET_KEY: &str = "key";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredAcme {
    pub(crate) spec: AcmeSettings,
    /// Namespace of the last configuration that sets `spec.acme`.
    pub(crate) namespace: String,
    /// Namespace of the configuration that sets the external account.
    pub(crate) account_namespace: String,
}

/// Each error starts with the name of the field in `spec.acme`.
pub(super) fn faults(settings: &AcmeSettings) -> Vec<String> {
    let AcmeSettings {
        directory,
        email,
        terms_agreed: _,
        challenge,
        ca_bundle,
        external_account,
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
    faults.extend(external_account.iter().flat_map(account_faults));
    faults
}

fn account_faults(account: &AcmeExternalAccount) -> Vec<String> {
    let AcmeExternalAccount {
        key_id,
        secret_ref: AcmeSecretRef { name, namespace },
    } = account;
    let mut faults = Vec::new();
    let is_text = key_id.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_text || !(1..=MAX_KEY_ID).contains(&key_id.len()) {
        faults.push(format!(
            "externalAccount.keyID: {:?}: expected the CA's key identifier, 1 to {MAX_KEY_ID} \
             characters without spaces",
            excerpt(key_id)
        ));
    }
    let namespace = namespace.as_deref().unwrap_or("default");
    let wrong = names::check_object(namespace, name).err();
    faults.extend(wrong.map(|why| format!("externalAccount.secretRef: {why}")));
    faults
}

/// Returns the Secrets that configurations of this controller refer to.
pub fn external_account_secrets(world: &World, options: &Options) -> Vec<NamespacedName> {
    let classes = world.gateway_classes.iter();
    let ours = classes.filter(|class| class.spec.controller_name == options.controller_name);
    let of_classes =
        ours.filter_map(|class| parameters::named_by(class.spec.parameters_ref.as_ref()?, world));
    let own = options.configuration.as_deref();
    let secrets = own.into_iter().chain(of_classes).filter_map(|found| {
        let account = found.spec.acme.as_ref()?.external_account.as_ref()?;
        let from = namespace_or_own(&found.metadata.namespace, options);
        Some(secret_name(account, from))
    });
    secrets.collect()
}

/// A configuration in a file may have no namespace.
fn namespace_or_own<'n>(namespace: &'n str, options: &'n Options) -> &'n str {
    if namespace.is_empty() {
        &options.namespace
    } else {
        namespace
    }
}

/// Returns true if the namespace is the operator's, because it contains the configuration.
pub(crate) fn is_operators(
    configured: &ConfiguredAcme,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> bool {
    // All objects on a host with manifests are the operator's.
    cx.options.resolved_for == ResolvedFor::Host
        || namespace_or_own(&configured.namespace, cx.options) == namespace
}

fn secret_name(account: &AcmeExternalAccount, from: &str) -> NamespacedName {
    let AcmeSecretRef { name, namespace } = &account.secret_ref;
    NamespacedName::new(namespace.as_deref().unwrap_or(from), name)
}

/// Also returns why the account lacks a key. The message never contains any part of the key.
pub(crate) fn external_account(
    configured: &ConfiguredAcme,
    cx: &ResolveContext<'_, '_>,
) -> (Option<ExternalAccount>, Option<String>) {
    let ConfiguredAcme {
        spec,
        namespace: _,
        account_namespace,
    } = configured;
    let Some(account) = &spec.external_account else {
        return (None, None);
    };
    let from = namespace_or_own(account_namespace, cx.options);
    let (key, fault) = match mac_key(&secret_name(account, from), from, cx) {
        Ok(key) => (Some(key), None),
        Err(why) => (None, Some(why)),
    };
    let external = ExternalAccount {
        key_id: account.key_id.clone(),
        key,
    };
    let fault = fault.map(|why| {
        format!(
            "spec.acme.externalAccount.secretRef: {why}; until then, no account is created at the CA"
        )
    });
    (Some(external), fault)
}

fn mac_key(
    name: &NamespacedName,
    from: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<MacKey, String> {
    if name.namespace != from {
        let referrer = Referrer::new(Kind::SesameConfiguration, from);
        let referent = Referent::new(Kind::Secret, &name.namespace, &name.name);
        let granted = cx.grants.check(referrer, referent);
        granted.map_err(|why| format!("{why}; create one"))?;
    }
    let Some(secret) = cx.world.secrets.get(&name.namespace, &name.name) else {
        return Err(format!("Secret {name} does not exist; create it"));
    };
    if !secret.is_opaque() {
        let type_ = excerpt(&secret.type_);
        return Err(format!(
            "Secret {name} has type {type_:?}; expected Opaque, so create another Secret"
        ));
    }
    let Some(text) = secret.get(SECRET_KEY) else {
        return Err(format!("Secret {name} has no {SECRET_KEY:?}; add it"));
    };
    MacKey::decode(text).ok_or_else(|| {
        format!(
            "Secret {name}: {SECRET_KEY:?} is not base64url; store the HMAC key as the CA shows it"
        )
    })
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
        // Depends on a Secret.
        external_account: _,
    } = settings;
    (*terms_agreed == Some(true)).then(|| AcmeIssuer {
        directory: directory.as_deref().unwrap_or(LETS_ENCRYPT).to_owned(),
        email: email.clone(),
        method: match challenge {
            Some(AcmeChallenge::Dns01) => ChallengeMethod::Dns01,
            _ => ChallengeMethod::Http01,
        },
        ca_bundle: ca_bundle.clone(),
        external: None,
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
            external_account: Some(AcmeExternalAccount {
                key_id: "a b".to_owned(),
                secret_ref: AcmeSecretRef {
                    name: "../x".to_owned(),
                    namespace: None,
                },
            }),
            ..AcmeSettings::default()
        };
        let why = fault(settings);
        for words in [
            "externalAccount.keyID: \"a b\": expected",
            "externalAccount.secretRef: name \"../x\"",
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
