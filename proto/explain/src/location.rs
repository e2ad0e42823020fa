//! Computes rewrites and redirects as Envoy does with the rendered configuration.

use sesame_proto::schema::{PathMatch, PathModifier, Redirect, path_match, path_modifier};

use super::compared::Compared;
use super::expressions;
use super::request::UrlScheme;

/// For a redirect, the replacement may contain a query.
pub(super) fn replaced(
    matched: Option<&PathMatch>,
    modifier: &PathModifier,
    request: &Compared,
    redirect: bool,
) -> Result<String, String> {
    let Compared { path, query, .. } = request;
    let unchanged = || format!("{path}{query}");
    Ok(match &modifier.kind {
        None => unchanged(),
        Some(path_modifier::Kind::Regex(regex)) => {
            regex.literal()?;
            let path = expressions::substituted(regex, path).ok_or("the pattern is too large")?;
            format!("{path}{query}")
        }
        Some(path_modifier::Kind::Full(to)) if redirect && to.contains('?') => rooted(to),
        Some(path_modifier::Kind::Full(to)) => format!("{}{query}", rooted(to)),
        Some(path_modifier::Kind::Prefix(to)) => {
            let from = match matched.and_then(|it| it.kind.as_ref()) {
                None => "",
                Some(path_match::Kind::Prefix(prefix)) => prefix.trim_end_matches('/'),
                // Remove a final slash, so that the rest of the path starts with a slash.
                Some(path_match::Kind::TextPrefix(prefix)) => {
                    prefix.strip_suffix('/').unwrap_or(prefix)
                }
                Some(path_match::Kind::Exact(_) | path_match::Kind::Regex(_)) => {
                    return Err(
                        "a prefix can only be replaced if the rule matches a prefix".to_owned()
                    );
                }
            };
            let to = rooted(to);
            let to = to.trim_end_matches('/');
            // Percent-escapes may differ in case, but never in length.
            let rest = path.get(from.len()..).unwrap_or(path);
            match (from, to) {
                ("", "") => unchanged(),
                (_, "") => format!("/{}{query}", rest.strip_prefix('/').unwrap_or(rest)),
                (_, to) => format!("{to}{rest}{query}"),
            }
        }
    })
}

/// `domain` is the domain of the request's virtual host.
pub(super) fn location(
    redirect: &Redirect,
    matched: Option<&PathMatch>,
    domain: &str,
    request: &Compared,
) -> Result<String, String> {
    let Redirect {
        scheme,
        host,
        port,
        path,
        status: _,
        implied_port,
    } = redirect;
    let scheme = match scheme.as_str() {
        "" => request.scheme.as_str(),
        scheme => scheme,
    };
    let path = match path {
        Some(path) => replaced(matched, path, request, true)?,
        None => request.path_and_query(),
    };
    let keeps_port = *port == 0 && host.is_empty();
    let number = match request.authority.rsplit_once(':') {
        Some((before, digits)) if is_number(digits) => Some((before, digits)),
        _ => None,
    };
    let authority = match number {
        _ if !host.is_empty() => with_port(host, *port),
        _ if keeps_port && !domain.contains('*') => domain.to_owned(),
        None => with_port(&request.authority, *port),
        Some((before, _)) if *port != 0 => with_port(before, *port),
        Some((before, _)) if *implied_port != 0 => with_port(before, *implied_port),
        Some((before, digits)) => {
            let implied = match request.scheme {
                UrlScheme::Http => "80",
                UrlScheme::Https => "443",
            };
            // Envoy omits a port that is the default for the request's own scheme.
            if scheme != request.scheme.as_str() && digits == implied {
                before.to_owned()
            } else {
                request.authority.clone()
            }
        }
    };
    Ok(format!("{scheme}://{authority}{path}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn with_port(host: &str, port: u32) -> String {
    match port {
        0 => host.to_owned(),
        port => format!("{host}:{port}"),
    }
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}
