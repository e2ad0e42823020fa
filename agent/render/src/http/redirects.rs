//! Renders redirects.

use envoy_types::pb::envoy::config::route::v3::{
    RedirectAction, RouteMatch,
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
};
use sesame_proto::schema::{PathMatch, Redirect};

use super::{headers, matches, paths};
use crate::wrappers;

/// Every redirect keeps the query.
pub(crate) fn render(
    redirect: &Redirect,
    matched: Option<&PathMatch>,
) -> Result<RedirectAction, String> {
    let Redirect {
        scheme,
        host,
        port,
        path,
        status,
        implied_port: _,
    } = redirect;
    headers::check_value(host).map_err(|reason| format!("redirect host: {reason}"))?;
    let response_code = match status {
        301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        other => {
            return Err(format!(
                "unknown redirect status {other}; expected 301, 302, 303, 307 or 308"
            ));
        }
    };
    let scheme_rewrite_specifier = match scheme.as_str() {
        "" => None,
        "http" | "https" => Some(SchemeRewriteSpecifier::SchemeRedirect(scheme.clone())),
        other => {
            return Err(format!(
                "unknown redirect scheme `{other}`; expected http or https"
            ));
        }
    };
    if *port > 65_535 {
        return Err(format!("invalid redirect port {port}; expected 1 to 65535"));
    }
    let path_rewrite_specifier = match path {
        None => None,
        Some(path) => match paths::replacement(matched, path)? {
            paths::PathReplacement::Keep => None,
            paths::PathReplacement::Full(to) => Some(PathRewriteSpecifier::PathRedirect(to)),
            paths::PathReplacement::Prefix(to) => Some(PathRewriteSpecifier::PrefixRewrite(to)),
            paths::PathReplacement::Regex { pattern, to } => Some(
                PathRewriteSpecifier::RegexRewrite(paths::substitute(&pattern, to)),
            ),
        },
    };
    Ok(RedirectAction {
        host_redirect: host.clone(),
        port_redirect: *port,
        response_code: response_code.into(),
        scheme_rewrite_specifier,
        path_rewrite_specifier,
        ..Default::default()
    })
}

/// The variant for requests with a port in `Host` comes first.
///
/// Envoy keeps the port of `Host` in `Location`, although the redirect's port may differ. For a
/// single host, setting the host drops the port. Otherwise, Envoy can only replace the port.
/// `https://example.com:443/` has a redundant port, but is correct.
pub(crate) fn variants(
    redirect: &Redirect,
    domain: &str,
    route_match: &RouteMatch,
    action: RedirectAction,
) -> Vec<(RouteMatch, RedirectAction)> {
    let keeps_port = redirect.port == 0 && redirect.host.is_empty();
    if keeps_port && !domain.contains('*') {
        let host_redirect = domain.to_owned();
        return vec![(
            route_match.clone(),
            RedirectAction {
                host_redirect,
                ..action
            },
        )];
    }
    let mut variants = Vec::with_capacity(2);
    if keeps_port && (1..=65_535).contains(&redirect.implied_port) {
        let mut with_port = route_match.clone();
        with_port.headers.push(matches::header(
            ":authority",
            wrappers::matching(".*:[0-9]+"),
        ));
        variants.push((
            with_port,
            RedirectAction {
                port_redirect: redirect.implied_port,
                ..action.clone()
            },
        ));
    }
    variants.push((route_match.clone(), action));
    variants
}
