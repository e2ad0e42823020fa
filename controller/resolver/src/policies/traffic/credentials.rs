//! Reads the users and API keys of an AccessPolicy. Errors start with the field path relative to
//! `spec`, and never contain a credential.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::credentials;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    self, ApiKeySource, CredentialCheck, CredentialSet, api_key_source, credential_check,
};

use super::jwt::identity_header;
use crate::context::{Options, ResolveContext};
use crate::syntax::{limits, names};
use sesame_kinds::api::{self, ApiKeyAuth, BasicAuth, CredentialSecret, Secret, UserSecret};

const DEFAULT_USERS: &str = ".htpasswd";
const DEFAULT_HEADER: &str = "x-api-key";
const MAX_SECRETS: usize = 8;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Credentials {
    pub(crate) check: CredentialCheck,
    pub(crate) pair: Arc<KeyPair>,
    /// Header with the user's or client's name, for the backend. Clients must not set it.
    pub(super) identity: Option<String>,
    /// Headers to remove from requests to backends.
    pub(super) removed: Vec<String>,
}

impl Credentials {
    fn new(
        name: String,
        kind: credential_check::Kind,
        content: &BTreeMap<&str, &str>,
        options: &Options,
    ) -> Self {
        let text = credentials::write(content);
        Self {
            pair: options.credential_pair(name.clone(), &text),
            check: CredentialCheck {
                name,
                kind: Some(kind),
                exempt_clients: None,
            },
            identity: None,
            removed: Vec::new(),
        }
    }

    /// `owner` has the form `AccessPolicy/namespace/name`. `identity` is a header for the user's
    /// name.
    pub(crate) fn of_users(
        owner: &str,
        identity: Option<String>,
        forwards: bool,
        users: &BTreeMap<&str, &str>,
        options: &Options,
    ) -> Self {
        let basic = schema::BasicAuth {
            username_header: identity.clone().unwrap_or_default(),
        };
        let kind = credential_check::Kind::Basic(basic);
        Self {
            identity,
            removed: Vec::from_iter((!forwards).then(|| "authorization".to_owned())),
            ..Self::new(format!("{owner}/basicAuth"), kind, users, options)
        }
    }
}

pub(super) fn read_basic(
    owner: &str,
    spec: &BasicAuth,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<Credentials, String> {
    let BasicAuth {
        users: UserSecret { name, key },
        username_header,
        forward_credentials,
    } = spec;
    let at = format!(".basicAuth.users: Secret {namespace}/{name}");
    let key = key.as_deref().unwrap_or(DEFAULT_USERS);
    let users = read_users(&at, (namespace, name), Users::File(key), cx)?;
    let identity = username_header.as_deref();
    let identity = identity.map(|it| identity_header(".basicAuth.usernameHeader", it));
    let identity = identity.transpose()?;
    let forwards = forward_credentials.unwrap_or_default();
    let options = cx.options;
    Ok(Credentials::of_users(
        owner, identity, forwards, &users, options,
    ))
}

/// How a Secret stores its users.
#[derive(Clone, Copy)]
pub(crate) enum Users<'k> {
    /// An htpasswd file under this key.
    File(&'k str),
    /// One entry per user, whose value is the password's digest.
    Entries,
}

/// Returns the digests of the users' passwords. Errors start with `at`.
pub(crate) fn read_users<'w>(
    at: &str,
    secret: (&str, &str),
    format: Users<'_>,
    cx: &ResolveContext<'w, '_>,
) -> Result<BTreeMap<&'w str, &'w str>, String> {
    let secret = opaque(at, secret, cx)?;
    let text = |key: &str, value: &'w [u8]| {
        std::str::from_utf8(value).map_err(|_| format!("{at}: {key:?} is not UTF-8"))
    };
    match format {
        Users::File(key) => {
            let file = secret.get(key);
            let file = file.ok_or_else(|| format!("{at} has no {key:?}"))?;
            let users = credentials::users(text(key, file)?);
            users.map_err(|why| format!("{at}: {key:?}: {why}"))
        }
        Users::Entries => {
            let users = secret.entries().map(|(user, digest)| {
                let digest = text(user, digest)?;
                Ok((user, digest.trim_end_matches(['\r', '\n'])))
            });
            let users: BTreeMap<&str, &str> = users.collect::<Result<_, String>>()?;
            credentials::check_users(&users).map_err(|why| format!("{at}: {why}"))?;
            Ok(users)
        }
    }
}

pub(super) fn read_keys(
    owner: &str,
    spec: &ApiKeyAuth,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<Credentials, String> {
    let ApiKeyAuth {
        credentials: secrets,
        sources,
        client_header,
        forward_credentials,
    } = spec;
    let sources = read_sources(".apiKeyAuth.sources", sources)?;
    let keys = collect_keys(".apiKeyAuth.credentials", secrets, namespace, cx)?;
    credentials::check_api_keys(&keys).map_err(|why| format!(".apiKeyAuth.credentials: {why}"))?;
    let identity = client_header.as_deref();
    let identity = identity.map(|it| identity_header(".apiKeyAuth.clientHeader", it));
    let identity = identity.transpose()?;
    let is_read = |header: &String| {
        let kind = api_key_source::Kind::Header(header.clone());
        sources.iter().any(|it| it.kind.as_ref() == Some(&kind))
    };
    if let Some(header) = identity.as_ref().filter(|it| is_read(it)) {
        return Err(format!(
            ".apiKeyAuth.clientHeader {header:?} is also one of the sources, so requests would lose \
             their keys; expected another header"
        ));
    }
    let hides = !forward_credentials.unwrap_or_default();
    let mut removed = Vec::new();
    let mut hidden = false;
    for ApiKeySource { kind } in &sources {
        match kind {
            Some(api_key_source::Kind::Header(name)) => removed.push(name.clone()),
            _ => hidden = true,
        }
    }
    removed.retain(|_| hides);
    let api_key = schema::ApiKeyAuth {
        sources,
        client_header: identity.clone().unwrap_or_default(),
        hide: hides && hidden,
    };
    let kind = credential_check::Kind::ApiKey(api_key);
    Ok(Credentials {
        identity,
        removed,
        ..Credentials::new(format!("{owner}/apiKeyAuth"), kind, &keys, cx.options)
    })
}

fn collect_keys<'w>(
    field: &str,
    secrets: &[CredentialSecret],
    namespace: &str,
    cx: &ResolveContext<'w, '_>,
) -> Result<BTreeMap<&'w str, &'w str>, String> {
    limits::entries(field, secrets.len(), 1..=MAX_SECRETS)?;
    let mut keys = BTreeMap::new();
    for (i, CredentialSecret { name }) in secrets.iter().enumerate() {
        let at = format!("{field}[{i}]: Secret {namespace}/{name}");
        for (client, key) in opaque(&at, (namespace, name), cx)?.entries() {
            let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
            if !client.bytes().all(is_name) {
                return Err(format!(
                    "{at}: {client:?} is not valid; expected letters, digits, `-`, `_` and `.`"
                ));
            }
            let key = std::str::from_utf8(key);
            let key =
                key.map_err(|_| format!("{at}: the key of client {client:?} is not UTF-8"))?;
            // Files often end with a line break.
            let key = key.trim_end_matches(['\r', '\n']);
            if key.contains(['\r', '\n']) {
                return Err(format!(
                    "{at}: the key of client {client:?} has several lines; expected one line"
                ));
            }
            if keys.insert(client, key).is_some() {
                return Err(format!("{at}: client {client:?} is also in another Secret"));
            }
            limits::entries(field, keys.len(), 0..=CredentialSet::MAX_CREDENTIALS)?;
        }
    }
    Ok(keys)
}

pub(super) fn opaque<'w>(
    at: &str,
    (namespace, name): (&str, &str),
    cx: &ResolveContext<'w, '_>,
) -> Result<&'w Secret, String> {
    let secret = cx.world.secrets.get(namespace, name);
    let secret = secret.ok_or_else(|| format!("{at} does not exist"))?;
    if !secret.is_opaque() {
        let type_ = &secret.type_;
        return Err(format!("{at} has type {type_:?}; expected \"Opaque\""));
    }
    Ok(secret)
}

fn read_sources(field: &str, specs: &[api::ApiKeySource]) -> Result<Vec<ApiKeySource>, String> {
    limits::entries(field, specs.len(), 0..=CredentialSet::MAX_SOURCES)?;
    if specs.is_empty() {
        let kind = api_key_source::Kind::Header(DEFAULT_HEADER.to_owned());
        return Ok(vec![ApiKeySource { kind: Some(kind) }]);
    }
    let sources = specs.iter().enumerate().map(|(i, spec)| {
        let at = format!("{field}[{i}]");
        let api::ApiKeySource {
            header,
            query_parameter,
            cookie,
        } = spec;
        let kind = match (header, query_parameter, cookie) {
            (Some(name), None, None) => {
                names::check_token(format_args!("{at}.header"), name)?;
                api_key_source::Kind::Header(name.to_ascii_lowercase())
            }
            (None, Some(name), None) => {
                names::check_token(format_args!("{at}.queryParameter"), name)?;
                api_key_source::Kind::QueryParameter(name.clone())
            }
            (None, None, Some(name)) => {
                names::check_token(format_args!("{at}.cookie"), name)?;
                api_key_source::Kind::Cookie(name.clone())
            }
            _ => {
                return Err(format!(
                    "{at}: expected exactly one of header, queryParameter and cookie"
                ));
            }
        };
        Ok(ApiKeySource { kind: Some(kind) })
    });
    sources.collect()
}
