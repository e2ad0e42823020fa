//! Redirects and direct responses of HTTPProxies.

use sesame_proto::schema::{PathModifier, path_modifier};

use super::rules::RouteFault;
use crate::api::{ProxyDirectResponse, ProxyRedirect};
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::routes::rules::Action;
use crate::resolve::syntax::{hostnames, names};

pub(super) fn redirect(to: &ProxyRedirect, has_prefix: bool) -> Result<RedirectTo, RouteFault> {
    let ProxyRedirect {
        scheme,
        hostname,
        port,
        status_code,
        path,
        prefix,
    } = to;
    let fault = |why: String| {
        (
            ("RouteError", "RequestRedirectPolicy"),
            format!("requestRedirectPolicy: {why}"),
        )
    };
    let scheme = match scheme.as_deref() {
        None | Some("") => "",
        Some("http") => "http",
        Some("https") => "https",
        Some(other) => return Err(fault(format!("scheme {other:?}; expected http or https"))),
    };
    if let Some(hostname) = hostname {
        hostnames::check_precise(hostname).map_err(|why| fault(format!("hostname {why}")))?;
    }
    let outside = |port: &i32| {
        names::port(*port).ok_or_else(|| fault(format!("port {port} is out of range")))
    };
    let path = match (path, prefix) {
        (Some(_), Some(_)) => return Err(fault("both path and prefix are set".to_owned())),
        (Some(path), None) => Some(path_modifier::Kind::Full(path.to_string())),
        (None, Some(_)) if !has_prefix => {
            return Err(fault("prefix needs a prefix condition".to_owned()));
        }
        (None, Some(prefix)) => Some(path_modifier::Kind::Prefix(prefix.to_string())),
        (None, None) => None,
    };
    if let Some(path_modifier::Kind::Full(text) | path_modifier::Kind::Prefix(text)) = &path {
        names::check_path("path", text).map_err(fault)?;
    }
    let status = status_code.unwrap_or(302);
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err(fault(format!(
            "statusCode {status}; expected 301, 302, 303, 307 or 308"
        )));
    }
    Ok(RedirectTo {
        scheme,
        host: hostname.as_deref().unwrap_or_default().to_owned(),
        port: port.as_ref().map(outside).transpose()?,
        path: path.map(|kind| PathModifier { kind: Some(kind) }),
        status: status.unsigned_abs(),
    })
}

pub(super) fn direct_response(answer: &ProxyDirectResponse) -> Result<Action, RouteFault> {
    let ProxyDirectResponse {
        status_code,
        body: _,
    } = answer;
    if let Ok(status @ 200..=599) = u32::try_from(*status_code) {
        return Ok(Action::Respond(status));
    }
    let why = format!("directResponsePolicy.statusCode {status_code}; expected 200 to 599");
    Err((("RouteError", "DirectResponseNotValid"), why))
}
