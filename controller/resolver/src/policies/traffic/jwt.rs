//! Reads the token requirements of an AccessPolicy. Errors start with the field path relative to
//! `spec`.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::schema::{
    self, TokenHeader, TokenPolicy, TokenProvider, TokenSource, token_source,
};

use crate::context::ResolveContext;
use crate::policies::key_sets::{RemoteKeySet, canonical};
use crate::syntax::header_names::check_name;
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    ClaimHeader, JwksConfigMap, JwksSource, JwtHeader, JwtPolicy, JwtProvider, JwtSource,
};

const DEFAULT_KEY: &str = "jwks";
/// Maximum number of headers, query parameters and cookies that may carry a provider's tokens.
const MAX_SOURCES: usize = 4;
/// Maximum length of an issuer, audience or claim, in characters.
const MAX_CHARACTERS: usize = 253;

/// Proxies set headers with these prefixes, so policies must not set such headers from claims.
const RESERVED_PREFIXES: [&str; 4] = ["x-envoy-", "x-forwarded-", "x-request-id", "x-real-ip"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenCheck {
    pub(super) name: String,
    pub(super) policy: TokenPolicy,
    pub(super) claim_headers: Vec<schema::ClaimHeader>,
    /// Headers to remove from requests to backends.
    pub(super) token_headers: BTreeSet<String>,
    /// Warnings that do not prevent tokens from being checked.
    pub(super) notes: Vec<String>,
}

impl TokenCheck {
    /// Removes token headers from requests to backends unless `forward` is true.
    pub(crate) fn of_provider(owner: &str, provider: TokenProvider, forward: bool) -> Self {
        let headers = headers_of(&provider).into_iter();
        Self {
            name: TokenPolicy::name(owner),
            token_headers: headers.filter(|_| !forward).collect(),
            policy: TokenPolicy {
                providers: vec![provider],
                report_only: false,
            },
            claim_headers: Vec::new(),
            notes: Vec::new(),
        }
    }
}

pub(super) fn read(
    policy: &str,
    spec: &JwtPolicy,
    namespace: &str,
    cx: &mut ResolveContext<'_, '_>,
) -> Result<TokenCheck, String> {
    let JwtPolicy { providers: specs } = spec;
    let filter = TokenPolicy::name(policy);
    let field = ".jwt.providers";
    limits::entries(field, specs.len(), 1..=TokenPolicy::MAX_PROVIDERS)?;
    let mut providers: Vec<TokenProvider> = Vec::with_capacity(specs.len());
    let (mut headers, mut token_headers) = (Vec::new(), BTreeSet::new());
    let mut notes = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        let at = format!("{field}[{i}]");
        let name = &spec.name;
        if providers.iter().any(|it| it.name == *name) {
            return Err(format!(
                "{at}.name {name:?} is already used; names must be unique"
            ));
        }
        let (provider, note) = read_provider(&at, spec, namespace, cx)?;
        notes.extend(note);
        if !spec.forward_token.unwrap_or_default() {
            token_headers.extend(headers_of(&provider));
        }
        providers.push(provider);
        let claim_headers = read_claims(&format!("{at}.claimHeaders"), &spec.claim_headers)?;
        headers.extend(
            claim_headers
                .into_iter()
                .map(|(header, path)| schema::ClaimHeader {
                    header,
                    tokens: filter.clone(),
                    provider: name.clone(),
                    path,
                }),
        );
    }
    providers.sort_by(|a, b| a.name.cmp(&b.name));
    headers.sort_by(|a, b| (&a.provider, &a.header).cmp(&(&b.provider, &b.header)));
    Ok(TokenCheck {
        name: filter,
        policy: TokenPolicy {
            providers,
            report_only: false,
        },
        claim_headers: headers,
        token_headers,
        notes,
    })
}

fn headers_of(provider: &TokenProvider) -> Vec<String> {
    let sources = provider.sources.iter();
    let headers = sources.filter_map(|TokenSource { kind }| match kind {
        Some(token_source::Kind::Header(header)) => Some(header.name.clone()),
        _ => None,
    });
    let default = provider.sources.is_empty();
    let default = default.then(|| "authorization".to_owned());
    headers.chain(default).collect()
}

fn read_provider(
    at: &str,
    spec: &JwtProvider,
    namespace: &str,
    cx: &mut ResolveContext<'_, '_>,
) -> Result<(TokenProvider, Option<String>), String> {
    let JwtProvider {
        name,
        issuer,
        audiences,
        jwks,
        sources,
        claim_headers: _,
        forward_token: _,
    } = spec;
    if !sesame_proto::dns_name::is_dns_label(name) {
        return Err(format!(
            "{at}.name {name:?} is not valid; expected lowercase letters, digits and `-`"
        ));
    }
    check_text(&format!("{at}.issuer"), issuer)?;
    limits::entries(
        &format!("{at}.audiences"),
        audiences.len(),
        0..=TokenPolicy::MAX_ENTRIES,
    )?;
    for (i, audience) in audiences.iter().enumerate() {
        check_text(&format!("{at}.audiences[{i}]"), audience)?;
    }
    let (keys, note) = read_keys(&format!("{at}.jwks"), jwks, namespace, cx)?;
    let provider = TokenProvider {
        name: name.clone(),
        issuer: issuer.clone(),
        audiences: audiences.clone(),
        jwks: keys.to_string(),
        sources: read_sources(&format!("{at}.sources"), sources)?,
    };
    Ok((provider, note))
}

pub(crate) fn check_text(field: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(format!(
            "{field} {text:?} is not valid; expected printable text"
        ));
    }
    limits::max_bytes(field, text, MAX_CHARACTERS)
}

/// Splits a claim's path at dots, outermost name first.
pub(super) fn read_claim(field: &str, claim: &str) -> Result<Vec<String>, String> {
    check_text(field, claim)?;
    let path: Vec<String> = claim.split('.').map(ToOwned::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err(format!(
            "{field} {claim:?} has an empty part; expected names separated by dots"
        ));
    }
    Ok(path)
}

fn read_keys(
    at: &str,
    spec: &JwksSource,
    namespace: &str,
    cx: &mut ResolveContext<'_, '_>,
) -> Result<(Arc<str>, Option<String>), String> {
    match spec {
        JwksSource {
            inline: Some(text),
            config_map_ref: None,
            remote: None,
        } => {
            let keys = cx.key_sets.get(text, canonical);
            Ok((keys.map_err(|why| format!("{at}.inline {why}"))?, None))
        }
        JwksSource {
            inline: None,
            config_map_ref: Some(JwksConfigMap { name, key }),
            remote: None,
        } => {
            let at = format!("{at}.configMapRef: ConfigMap {namespace}/{name}");
            let key = key.as_deref().unwrap_or(DEFAULT_KEY);
            let text = cx.config_map_text(&at, (namespace, name), key)?;
            let keys = cx.key_sets.get(text, canonical);
            Ok((keys.map_err(|why| format!("{at}: {key:?} {why}"))?, None))
        }
        JwksSource {
            inline: None,
            config_map_ref: None,
            remote: Some(remote),
        } => {
            let remote = RemoteKeySet::of_policy(remote, namespace);
            let remote = remote.map_err(|why| format!("{at}.remote{why}"))?;
            let read = remote.read(cx);
            read.map_err(|why| format!("{at}.remote: {why}"))
        }
        JwksSource {
            inline: _,
            config_map_ref: _,
            remote: _,
        } => Err(format!(
            "{at}: expected one of inline, configMapRef and remote"
        )),
    }
}

fn read_sources(field: &str, specs: &[JwtSource]) -> Result<Vec<TokenSource>, String> {
    limits::entries(field, specs.len(), 0..=MAX_SOURCES)?;
    let sources = specs.iter().enumerate().map(|(i, spec)| {
        let at = format!("{field}[{i}]");
        let kind = match spec {
            JwtSource {
                header: Some(JwtHeader { name, prefix }),
                query_parameter: None,
                cookie: None,
            } => {
                names::check_token(format_args!("{at}.header.name"), name)?;
                if let Some(prefix) = prefix {
                    check_text(&format!("{at}.header.prefix"), prefix)?;
                }
                token_source::Kind::Header(TokenHeader {
                    name: name.to_ascii_lowercase(),
                    prefix: prefix.clone().unwrap_or_default(),
                })
            }
            JwtSource {
                header: None,
                query_parameter: Some(name),
                cookie: None,
            } => {
                names::check_token(format_args!("{at}.queryParameter"), name)?;
                token_source::Kind::QueryParameter(name.clone())
            }
            JwtSource {
                header: None,
                query_parameter: None,
                cookie: Some(name),
            } => {
                names::check_token(format_args!("{at}.cookie"), name)?;
                token_source::Kind::Cookie(name.clone())
            }
            JwtSource {
                header: _,
                query_parameter: _,
                cookie: _,
            } => {
                return Err(format!(
                    "{at}: expected one of header, queryParameter and cookie"
                ));
            }
        };
        Ok(TokenSource { kind: Some(kind) })
    });
    sources.collect()
}

fn read_claims(field: &str, specs: &[ClaimHeader]) -> Result<Vec<(String, Vec<String>)>, String> {
    limits::entries(field, specs.len(), 0..=TokenPolicy::MAX_ENTRIES)?;
    let mut seen = BTreeSet::new();
    let headers = specs.iter().enumerate().map(|(i, spec)| {
        let ClaimHeader { claim, header } = spec;
        let at = format!("{field}[{i}]");
        let path = read_claim(&format!("{at}.claim"), claim)?;
        if !path.iter().all(|name| schema::ClaimHeader::is_name(name)) {
            return Err(format!(
                "{at}.claim {claim:?} is not supported in headers; expected names of letters, \
                digits, `_` and `-`, separated by dots"
            ));
        }
        let header = identity_header(&format!("{at}.header"), header)?;
        if !seen.insert(header.clone()) {
            return Err(format!("{at}.header {header:?} is listed twice"));
        }
        Ok((header, path))
    });
    headers.collect()
}

/// Returns the lower-case name of a header that identifies the client to the backend.
pub(super) fn identity_header(field: &str, header: &str) -> Result<String, String> {
    check_name(format_args!("{field}"), header)?;
    let header = header.to_ascii_lowercase();
    if !header.starts_with("x-") || RESERVED_PREFIXES.iter().any(|it| header.starts_with(it)) {
        return Err(format!(
            "{field} {header:?} is not allowed; expected a name that begins with `x-`, and that no \
             proxy sets"
        ));
    }
    Ok(header)
}
