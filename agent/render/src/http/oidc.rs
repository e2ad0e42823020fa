//! Logs users in at an OpenID Connect provider.
//!
//! No request passes unchecked: a route with an invalid login, or without its secrets, responds with
//! 500. The filter has its own place. In a composite filter, Envoy 1.39 cannot create it. In a
//! filter file, Envoy never reads the secrets of filters that are added while it runs.

use envoy_types::pb::envoy::config::core::v3::{HttpUri, http_uri};
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::cookie_config::SameSite;
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::o_auth2_config::AuthType;
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::o_auth2_credentials::{
    CookieNames, TokenFormation,
};
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::{
    CookieConfig, CookieConfigs, OAuth2, OAuth2Config, OAuth2Credentials, OAuth2PerRoute,
    OAuth2TokenForwarding, PostLogoutRedirectUri, post_logout_redirect_uri,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{PathMatcher, path_matcher};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::digest::sha256;
use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::oidc_login::Token;
use sesame_proto::schema::{ExternalAuth, OidcLogin};

use crate::context::RenderContext;
use crate::tls::in_watched_file;
use crate::tls::secrets::{client_secret, cookie_secret};
use crate::wrappers;

pub(crate) const FILTER: &str = "oidc";

const TIMEOUT_MS: u64 = 5_000;
const MAX_TIMEOUT_MS: u64 = 60_000;

/// The host that the client requested. Cookies are valid only over HTTPS, so users are never sent
/// anywhere else.
const ORIGIN: &str = "https://%REQ(:AUTHORITY)%";

/// Number of hexadecimal digits in cookie names that identify the policy.
const ID_DIGITS: usize = 12;

pub(crate) fn login_of(auth: &ExternalAuth) -> Option<&OidcLogin> {
    match &auth.protocol {
        Some(Protocol::Oidc(login)) => Some(login),
        _ => None,
    }
}

/// Without a route's configuration, this filter lets all requests pass.
pub(crate) fn placeholder() -> Any {
    pack_any(OAuth2::default())
}

/// `behind_listener` is true if the listener's own authorizations run first. They may make Envoy
/// select another route after it has chosen the filters, which could skip this filter.
pub(crate) fn of_route(
    auths: &[ExternalAuth],
    behind_listener: bool,
    context: &RenderContext<'_>,
) -> Result<Option<Any>, String> {
    let mut logins = auths
        .iter()
        .filter_map(|auth| Some((auth, login_of(auth)?)));
    let Some((auth, login)) = logins.next() else {
        return Ok(None);
    };
    if let Some((other, _)) = logins.next() {
        return Err(format!(
            "{} and {} both require a login; a request can have only one",
            auth.policy, other.policy
        ));
    }
    if behind_listener {
        return Err(format!(
            "the login of {} is not supported together with the listener's filters",
            auth.policy
        ));
    }
    if auth.exempt_clients.is_some() {
        return Err(format!(
            "the login of {} must not exempt clients",
            auth.policy
        ));
    }
    let config = config(auth, login, context);
    config
        .map(Some)
        .map_err(|why| format!("login of {}: {why}", auth.policy))
}

fn config(
    auth: &ExternalAuth,
    login: &OidcLogin,
    context: &RenderContext<'_>,
) -> Result<Any, String> {
    let ExternalAuth {
        backend,
        protocol: _,
        policy,
        timeout_ms,
        // Not for logins, which never fail open.
        max_body_bytes: _,
        context: _,
        fail_open: _,
        partial_body: _,
        no_response_headers: _,
        exempt_clients: _,
    } = auth;
    check(login)?;
    if !context.has_cluster(backend) {
        return Err(format!("the token endpoint `{backend}` has no cluster"));
    }
    let OidcLogin {
        client_id,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        hostnames,
        scopes,
        redirect_path,
        logout_path,
        api_paths,
        no_refresh,
        forwarded: _,
    } = login;
    let key = OidcLogin::key(policy);
    let timeout_ms = match timeout_ms {
        0 => TIMEOUT_MS,
        timeout_ms => (*timeout_ms).min(MAX_TIMEOUT_MS),
    };
    let after_logout = PostLogoutRedirectUri {
        config: Some(post_logout_redirect_uri::Config::Uri(format!("{ORIGIN}/"))),
    };
    let config = OAuth2Config {
        token_endpoint: Some(HttpUri {
            uri: token_endpoint.clone(),
            timeout: wrappers::milliseconds(timeout_ms),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(backend.clone())),
        }),
        authorization_endpoint: authorization_endpoint.clone(),
        end_session_endpoint: end_session_endpoint.clone(),
        post_logout_redirect_uri: (!end_session_endpoint.is_empty()).then_some(after_logout),
        credentials: Some(OAuth2Credentials {
            client_id: client_id.clone(),
            token_secret: Some(in_watched_file(&client_secret(&key), context)?),
            token_formation: Some(TokenFormation::HmacSecret(in_watched_file(
                &cookie_secret(&key),
                context,
            )?)),
            cookie_names: Some(cookie_names(policy)),
            // Without a domain, browsers send cookies only to the host that set them.
            cookie_domain: String::new(),
        }),
        redirect_uri: format!("{ORIGIN}{redirect_path}"),
        original_request_uri: ORIGIN.to_owned(),
        allowed_redirect_domains: hostnames.clone(),
        redirect_path_matcher: Some(path(redirect_path)),
        signout_path: Some(path(logout_path)),
        auth_scopes: scopes.clone(),
        auth_type: AuthType::BasicAuth.into(),
        use_refresh_token: wrappers::boolean(!no_refresh),
        disable_refresh_token_set_cookie: *no_refresh,
        deny_redirect_matcher: without_redirect(api_paths),
        cookie_configs: Some(cookie_configs()),
        ..forwarding(login.forwarded())
    };
    Ok(pack_any(OAuth2PerRoute {
        config: Some(config),
    }))
}

/// Envoy never removes tokens' cookies from requests to backends, so tokens that no backend needs
/// are not in cookies.
fn forwarding(token: Token) -> OAuth2Config {
    let all = OAuth2Config {
        disable_access_token_set_cookie: true,
        disable_id_token_set_cookie: true,
        ..Default::default()
    };
    match token {
        Token::AccessToken => OAuth2Config {
            forward_bearer_token: true,
            disable_access_token_set_cookie: false,
            ..all
        },
        Token::IdToken => OAuth2Config {
            forward_id_token: Some(OAuth2TokenForwarding {
                header: "authorization".to_owned(),
            }),
            disable_id_token_set_cookie: false,
            ..all
        },
        // Other policies may check the client's header.
        Token::None => OAuth2Config {
            preserve_authorization_header: true,
            ..all
        },
    }
}

fn check(login: &OidcLogin) -> Result<(), String> {
    let OidcLogin {
        client_id,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        hostnames,
        scopes,
        redirect_path,
        logout_path,
        api_paths,
        no_refresh: _,
        forwarded,
    } = login;
    let most = OidcLogin::MAX_ENTRIES;
    let optional = Some(end_session_endpoint).filter(|it| !it.is_empty());
    let mut endpoints = [authorization_endpoint, token_endpoint]
        .into_iter()
        .chain(optional);
    let mut paths = [redirect_path, logout_path].into_iter().chain(api_paths);
    let is_valid = OidcLogin::is_client(client_id)
        && endpoints.all(|it| OidcLogin::is_endpoint(it))
        && paths.all(|it| OidcLogin::is_path(it))
        && redirect_path != logout_path
        // Envoy allows redirects to any host if the list is empty.
        && (1..=most).contains(&hostnames.len())
        && hostnames.iter().all(|it| OidcLogin::is_hostname(it))
        && (1..=most).contains(&scopes.len())
        && scopes.iter().all(|it| OidcLogin::is_scope(it))
        && scopes.iter().any(|it| it == OidcLogin::OPENID)
        && api_paths.len() <= most
        && Token::try_from(*forwarded).is_ok();
    if is_valid {
        return Ok(());
    }
    Err("its settings are invalid".to_owned())
}

fn path(exact: &str) -> PathMatcher {
    PathMatcher {
        rule: Some(path_matcher::Rule::Path(wrappers::exact(exact))),
    }
}

/// Browsers that load a page accept HTML. Other clients cannot follow a redirect to a login page.
fn without_redirect(api_paths: &[String]) -> Vec<HeaderMatcher> {
    let header = |name: &str, pattern| HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(wrappers::string(pattern))),
        ..Default::default()
    };
    let not = |matcher| HeaderMatcher {
        invert_match: true,
        treat_missing_header_as_empty: true,
        ..matcher
    };
    let pages = not(header(
        "accept",
        MatchPattern::Contains("text/html".to_owned()),
    ));
    let methods = wrappers::regex("GET|HEAD");
    let safe = not(header(":method", MatchPattern::SafeRegex(methods)));
    let script = "XMLHttpRequest".to_owned();
    let script = header("x-requested-with", MatchPattern::Exact(script));
    let paths = api_paths.iter().map(|it| {
        let below = format!("{}([/?].*)?", it.replace('.', r"\."));
        header(":path", MatchPattern::SafeRegex(wrappers::regex(below)))
    });
    [pages, safe, script].into_iter().chain(paths).collect()
}

/// Browsers send cookies with this prefix only over HTTPS to the host that set them, and let no
/// other host overwrite them. Each policy has its own names.
fn cookie_names(policy: &str) -> CookieNames {
    let mut id = sha256(policy.as_bytes());
    id.truncate(ID_DIGITS);
    let name = |what: &str| format!("__Host-oidc-{id}-{what}");
    CookieNames {
        bearer_token: name("access"),
        oauth_hmac: name("hmac"),
        oauth_expires: name("expires"),
        id_token: name("id"),
        refresh_token: name("refresh"),
        oauth_nonce: name("nonce"),
        code_verifier: name("verifier"),
    }
}

/// Browsers send the cookies when another site, such as the provider, links to the host.
fn cookie_configs() -> CookieConfigs {
    let lax = || {
        Some(CookieConfig {
            same_site: SameSite::Lax.into(),
            ..Default::default()
        })
    };
    CookieConfigs {
        bearer_token_cookie_config: lax(),
        oauth_hmac_cookie_config: lax(),
        oauth_expires_cookie_config: lax(),
        id_token_cookie_config: lax(),
        refresh_token_cookie_config: lax(),
        oauth_nonce_cookie_config: lax(),
        code_verifier_cookie_config: lax(),
    }
}
