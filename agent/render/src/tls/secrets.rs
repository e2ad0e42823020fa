//! Renders key pairs, session ticket keys and trust bundles as SDS resources with inline data.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, GenericSecret, Secret, TlsCertificate, TlsSessionTicketKeys,
    secret,
};
use sesame_proto::credentials::ClientSecrets;
use sesame_proto::digest::sha256_of_all;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    CredentialSet, InjectedCredential, KeyRef, OidcLogin, Snapshot, TrustBundle,
};
use sesame_proto::tls_parameters::TICKET_KEY_BYTES;

use crate::context::{RenderOptions, RetainedAuthorities, StandInTickets};
use crate::rendered::{RenderProblems, Resource, by_name};
use crate::wrappers;

/// Returns secrets sorted by name. The host's own session ticket keys replace missing ones.
pub(crate) fn render(
    snapshot: &Snapshot,
    keys: &[KeyPair],
    options: &RenderOptions,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    let Snapshot {
        ports,
        keys: key_refs,
        trust_bundles,
        ..
    } = snapshot;
    let pairs: BTreeMap<&str, &KeyPair> = keys.iter().map(|k| (k.name.as_str(), k)).collect();
    let mut names = BTreeSet::new();
    let mut secrets = Vec::new();
    for KeyRef {
        name,
        digest,
        serial: _,
        not_after: _,
        on_host,
    } in key_refs
    {
        if is_credentials(name) {
            continue;
        }
        let Some(pair) = pairs.get(name.as_str()) else {
            problems.add(name, missing(*on_host));
            continue;
        };
        // The reference and the pair of a rotated key arrive separately. In between, the pair is
        // older or newer than the reference, but usable.
        let found = pair.digest();
        if !digest.is_empty() && found != *digest {
            problems.add(
                name,
                format!("the key pair on this host has digest {found}, but the snapshot names {digest}; it is used anyway"),
            );
        }
        if !names.insert(name) {
            continue;
        }
        if OidcLogin::policy_of(name).is_some() {
            let pair = client_secrets(pair);
            secrets.extend(
                problems
                    .value(name, pair, "its login is left out")
                    .into_iter()
                    .flatten(),
            );
        } else {
            secrets.push(keys_of(pair));
        }
    }
    for bundle in trust_bundles {
        let name = &bundle.name;
        if !names.insert(name) {
            problems.add(
                name,
                "the trust bundle has the same name as another secret; it is left out",
            );
            continue;
        }
        let context = validation(bundle, options.retained.get(name));
        secrets.push(encode(name, secret::Type::ValidationContext(context)));
    }
    if let Some(StandInTickets(own)) = &options.stand_in_tickets {
        let listeners = ports.iter().flat_map(|port| &port.listeners);
        let tickets =
            listeners.filter_map(|listener| Some(&listener.tls.as_ref()?.session_ticket_keys));
        for name in tickets.filter(|name| !name.is_empty()) {
            if names.insert(name) {
                secrets.push(ticket_keys(name, own.chunks(TICKET_KEY_BYTES)));
            }
        }
    }
    by_name(secrets, problems)
}

fn missing(on_host: bool) -> &'static str {
    if on_host {
        "the key pair is stored on hosts, but no local-certificate of this host names its files; everything that needs it is left out"
    } else {
        "the key pair is named by the snapshot but is not on this host; everything that needs it is left out"
    }
}

/// Returns true if the key holds passwords or API keys, which are in filters instead of secrets.
fn is_credentials(name: &str) -> bool {
    CredentialSet::checks(name).next().is_some() || InjectedCredential::filter(name).is_some()
}

const CLIENT_SECRET: &str = "/client";
const COOKIE_SECRET: &str = "/cookies";

/// Separates keys for cookies from other uses of the same secret.
const COOKIE_KEYS: &str = "sesame oidc cookies 1";

/// Returns the name of the secret that authenticates the client.
pub(crate) fn client_secret(key: &str) -> String {
    format!("{key}{CLIENT_SECRET}")
}

/// Returns the name of the secret that protects cookies.
pub(crate) fn cookie_secret(key: &str) -> String {
    format!("{key}{COOKIE_SECRET}")
}

/// Returns true if only a login needs the secret.
pub(crate) fn is_of_login(secret: &str) -> bool {
    let key = secret.strip_suffix(CLIENT_SECRET);
    let key = key.or_else(|| secret.strip_suffix(COOKIE_SECRET));
    key.is_some_and(|key| OidcLogin::policy_of(key).is_some())
}

/// All hosts derive the same key for cookies. The key depends on the policy, so that the cookies of
/// one policy are invalid for another policy with the same secret.
fn client_secrets(pair: &KeyPair) -> Result<[Resource; 2], String> {
    let KeyPair {
        name, private_key, ..
    } = pair;
    let text = std::str::from_utf8(private_key).map_err(|_| "its secret is not text")?;
    let ClientSecrets { client, cookies } = ClientSecrets::read(text)?;
    let parts = [COOKIE_KEYS, name, cookies].map(str::as_bytes);
    let [purpose, name_bytes, cookies] = parts;
    let key = sha256_of_all(&[purpose, b"\n", name_bytes, b"\n", cookies]);
    let generic = |name: &str, secret: &str| {
        let secret = GenericSecret {
            secret: Some(wrappers::bytes(secret.as_bytes())),
            ..Default::default()
        };
        encode(name, secret::Type::GenericSecret(secret))
    };
    Ok([
        generic(&client_secret(name), client),
        generic(&cookie_secret(name), &key),
    ])
}

/// A pair without a certificate contains session ticket keys.
fn keys_of(pair: &KeyPair) -> Resource {
    let KeyPair {
        name,
        certificate_chain,
        private_key,
        ocsp_staple,
    } = pair;
    if certificate_chain.is_empty() {
        return ticket_keys(name, private_key.chunks(TICKET_KEY_BYTES));
    }
    let pair = TlsCertificate {
        certificate_chain: Some(wrappers::bytes(certificate_chain)),
        private_key: Some(wrappers::bytes(private_key)),
        ocsp_staple: (!ocsp_staple.is_empty()).then(|| wrappers::bytes(ocsp_staple)),
        ..Default::default()
    };
    encode(name, secret::Type::TlsCertificate(pair))
}

fn validation(
    bundle: &TrustBundle,
    retained: Option<&RetainedAuthorities>,
) -> CertificateValidationContext {
    let TrustBundle {
        name: _,
        pem,
        crl,
        crl_for_leaf_only,
    } = bundle;
    let (more, more_crl) = retained.map_or(("", ""), |it| (it.pem.as_str(), it.crl.as_str()));
    let (pem, crl) = (joined(pem, more), joined(crl, more_crl));
    CertificateValidationContext {
        trusted_ca: Some(wrappers::bytes(pem.as_bytes())),
        only_verify_leaf_cert_crl: *crl_for_leaf_only && !crl.is_empty(),
        crl: (!crl.is_empty()).then(|| wrappers::bytes(crl.as_bytes())),
        ..Default::default()
    }
}

fn joined<'a>(pem: &'a str, more: &str) -> Cow<'a, str> {
    match (pem, more) {
        (pem, "") => pem.into(),
        (pem, more) if pem.is_empty() || pem.ends_with('\n') => format!("{pem}{more}").into(),
        (pem, more) => format!("{pem}\n{more}").into(),
    }
}

pub(crate) const SESSION_TICKET_KEYS: &str = "session-ticket-keys";

/// Returns the host's session ticket keys, newest first. Each has [`TICKET_KEY_BYTES`] bytes.
pub fn session_ticket_keys<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Resource {
    ticket_keys(SESSION_TICKET_KEYS, keys)
}

fn ticket_keys<'k>(name: &str, keys: impl Iterator<Item = &'k [u8]>) -> Resource {
    let keys = TlsSessionTicketKeys {
        keys: keys.map(wrappers::bytes).collect(),
    };
    encode(name, secret::Type::SessionTicketKeys(keys))
}

fn encode(name: &str, secret: secret::Type) -> Resource {
    let secret = Secret {
        name: name.to_owned(),
        r#type: Some(secret),
    };
    Resource::new(name, &secret)
}
