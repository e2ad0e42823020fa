//! Reads the login of an AccessPolicy. Errors start with the field path relative to `spec`, and
//! never contain a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::credentials::{self, ClientSecrets};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::oidc_login::Token;
use sesame_proto::schema::{self, ExternalAuth};

use super::super::key_sets::RemoteKeySet;
use super::credentials::opaque;
use crate::backends::{Backends, Traffic};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::syntax::limits;
use sesame_kinds::api::{ClientSecret, ForwardedToken, OidcLogin, OidcProvider};
use sesame_kinds::world::Kind;

const DEFAULT_REDIRECT: &str = "/oauth2/callback";
const DEFAULT_LOGOUT: &str = "/logout";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Login {
    pub(super) auth: ExternalAuth,
    /// The client's secrets.
    pub(super) pair: Arc<KeyPair>,
    /// A warning that does not prevent logins.
    pub(super) note: Option<String>,
}

pub(super) fn read<'w>(
    policy: &str,
    spec: &OidcLogin,
    namespace: &str,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> Result<Login, String> {
    let OidcLogin {
        provider,
        client_id,
        client_secret,
        hostnames,
        scopes,
        redirect_path,
        logout_path,
        api_paths,
        refresh,
        forward_token,
    } = spec;
    let at = |field: &str| format!(".oidc.{field}");
    if !schema::OidcLogin::is_client(client_id) {
        return Err(format!(
            "{} {client_id:?}: expected visible ASCII characters",
            at("clientID")
        ));
    }
    let pair = read_secrets(policy, client_secret, namespace, cx)?;
    let paths = [
        ("redirectPath", redirect_path, DEFAULT_REDIRECT),
        ("logoutPath", logout_path, DEFAULT_LOGOUT),
    ];
    let [redirect_path, logout_path] =
        paths.map(|(field, path, default)| (field, path.as_deref().unwrap_or(default)));
    for (field, path) in [redirect_path, logout_path] {
        check_path(&at(field), path)?;
    }
    if redirect_path.1 == logout_path.1 {
        return Err(format!("{} is also redirectPath", at("logoutPath")));
    }
    let most = schema::OidcLogin::MAX_ENTRIES;
    limits::entries(&at("apiPaths"), api_paths.len(), 0..=most)?;
    for (i, path) in api_paths.iter().enumerate() {
        check_path(&at(&format!("apiPaths[{i}]")), path)?;
    }
    let forwarded = match forward_token {
        None => Token::None,
        Some(ForwardedToken::AccessToken) => Token::AccessToken,
        Some(ForwardedToken::IdToken) => Token::IdToken,
        Some(ForwardedToken::Other(other)) => {
            let known = ForwardedToken::WORDS.join(" or ");
            return Err(format!(
                "{} {other:?} is unknown; expected {known}",
                at("forwardToken")
            ));
        }
    };
    let renews = refresh.unwrap_or(true);
    if forwarded == Token::IdToken && renews {
        return Err(format!(
            "{} IDToken needs refresh: false, because Envoy would forward the client's own cookie \
             if the provider renews a session without a new ID token",
            at("forwardToken")
        ));
    }
    let login = schema::OidcLogin {
        client_id: client_id.clone(),
        hostnames: read_hostnames(&at("hostnames"), hostnames)?,
        scopes: read_scopes(&at("scopes"), scopes)?,
        redirect_path: redirect_path.1.to_owned(),
        logout_path: logout_path.1.to_owned(),
        api_paths: api_paths.clone(),
        no_refresh: !renews,
        forwarded: forwarded.into(),
        ..schema::OidcLogin::default()
    };
    let (login, note) = with_endpoints(login, provider, namespace, cx)?;
    let auth = at_provider(policy, provider, login, namespace, backends, cx)?;
    Ok(Login { auth, pair, note })
}

/// Endpoints in the policy take precedence over the provider's document.
fn with_endpoints(
    login: schema::OidcLogin,
    provider: &OidcProvider,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<(schema::OidcLogin, Option<String>), String> {
    let OidcProvider {
        issuer: _,
        ca_certificate_ref: _,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        backend_ref: _,
    } = provider;
    let at = ".oidc.provider";
    let (mut found, mut note) = (None, None);
    if let Some(remote) = RemoteKeySet::of_provider(provider, namespace) {
        let read = remote
            .map_err(|why| format!("{at}{why}"))?
            .read_provider(cx);
        let (document, why) = read.map_err(|why| format!("{at}.issuer: {why}"))?;
        (found, note) = (Some(document), why);
    }
    let found = found.unwrap_or_default();
    let endpoint = |field: &str, own: &Option<String>, found: String, is_needed: bool| {
        let url = own.clone().unwrap_or(found);
        if url.is_empty() && is_needed {
            return Err(format!("{at}.{field} is missing; set it, or issuer"));
        }
        if url.is_empty() || schema::OidcLogin::is_endpoint(&url) {
            return Ok(url);
        }
        Err(format!(
            "{at}.{field} {url:?} is not valid; expected a URL that begins with https:// or \
             http://, without a user or fragment"
        ))
    };
    let end = found.end_session_endpoint.unwrap_or_default();
    let login = schema::OidcLogin {
        authorization_endpoint: endpoint(
            "authorizationEndpoint",
            authorization_endpoint,
            found.authorization_endpoint,
            true,
        )?,
        token_endpoint: endpoint("tokenEndpoint", token_endpoint, found.token_endpoint, true)?,
        end_session_endpoint: endpoint("endSessionEndpoint", end_session_endpoint, end, false)?,
        ..login
    };
    Ok((login, note))
}

fn at_provider<'w>(
    policy: &str,
    provider: &OidcProvider,
    login: schema::OidcLogin,
    namespace: &str,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> Result<ExternalAuth, String> {
    let referrer = Referrer {
        group: Kind::AccessPolicy.group(),
        kind: Kind::AccessPolicy.as_str(),
        namespace,
    };
    let backend = backends.resolve_service(referrer, &provider.backend_ref, Traffic::Http, cx);
    let backend = backend.map_err(|(_, why)| format!(".oidc.provider.backendRef: {why}"))?;
    // The client's secret and the tokens must not be sent unencrypted by mistake.
    let token_endpoint = &login.token_endpoint;
    if token_endpoint.starts_with("https://") != backends.is_encrypted(&backend) {
        let backend_ref = &provider.backend_ref;
        let (name, port) = (&backend_ref.name, backend_ref.port.unwrap_or_default());
        return Err(format!(
            ".oidc.provider.tokenEndpoint {token_endpoint:?}: expected https if, and only if, a \
             BackendTLSPolicy applies to port {port} of Service {name}"
        ));
    }
    Ok(ExternalAuth {
        backend,
        policy: policy.to_owned(),
        protocol: Some(Protocol::Oidc(login)),
        ..ExternalAuth::default()
    })
}

fn read_secrets(
    policy: &str,
    ClientSecret { name }: &ClientSecret,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<Arc<KeyPair>, String> {
    let at = format!(".oidc.clientSecret: Secret {namespace}/{name}");
    let secret = opaque(&at, (namespace, name), cx)?;
    let mut secrets = BTreeMap::new();
    for (key, value) in secret.entries() {
        if matches!(key, ClientSecrets::CLIENT | ClientSecrets::COOKIES) {
            let value = std::str::from_utf8(value);
            let value = value.map_err(|_| format!("{at}: {key:?} is not UTF-8"))?;
            // Files often end with a line break.
            secrets.insert(key, value.trim_end_matches(['\r', '\n']));
        }
    }
    ClientSecrets::new(&secrets).map_err(|why| format!("{at}: {why}"))?;
    let name = schema::OidcLogin::key(policy);
    Ok(cx
        .options
        .credential_pair(name, &credentials::write(&secrets)))
}

fn read_hostnames(field: &str, hostnames: &[String]) -> Result<Vec<String>, String> {
    limits::entries(field, hostnames.len(), 1..=schema::OidcLogin::MAX_ENTRIES)?;
    let is_invalid = |name: &&String| !schema::OidcLogin::is_hostname(name);
    if let Some(name) = hostnames.iter().find(is_invalid) {
        return Err(format!(
            "{field} {name:?} is not valid; expected a host in lower case, such as a.test or *.a.test"
        ));
    }
    Ok(hostnames.to_vec())
}

fn read_scopes(field: &str, scopes: &[String]) -> Result<Vec<String>, String> {
    let openid = schema::OidcLogin::OPENID;
    limits::entries(field, scopes.len(), 0..=schema::OidcLogin::MAX_ENTRIES - 1)?;
    if let Some(scope) = scopes.iter().find(|it| !schema::OidcLogin::is_scope(it)) {
        return Err(format!("{field} {scope:?} is not a scope"));
    }
    let others = scopes.iter().filter(|it| *it != openid).cloned();
    Ok(std::iter::once(openid.to_owned()).chain(others).collect())
}

fn check_path(field: &str, path: &str) -> Result<(), String> {
    if schema::OidcLogin::is_path(path) {
        return Ok(());
    }
    Err(format!(
        "{field} {path:?} is not valid; expected a path such as /a/b, of letters, digits, `-`, `.`, \
         `_` and `~`"
    ))
}
