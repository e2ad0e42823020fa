//! Reads redirects and direct responses in HTTPProxies.

use sesame_proto::schema::{DirectResponse, PathModifier, path_modifier};

use super::rules::RouteFault;
use crate::filters::rewrites::{RedirectTo, read_redirect};
use crate::routes::rules::Action;
use crate::syntax::{limits, names};
use sesame_kinds::api::{ProxyDirectResponse, ProxyRedirect, RequestRedirect};

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
    if hostname.as_deref() == Some("") {
        return Err(fault("hostname is empty".to_owned()));
    }
    let same = RequestRedirect {
        scheme: scheme.as_deref().map(str::to_owned),
        hostname: hostname.as_deref().map(str::to_owned),
        path: None,
        port: *port,
        status_code: *status_code,
    };
    let redirect = read_redirect(&same, false).map_err(fault)?;
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
    Ok(RedirectTo {
        path: path.map(|kind| PathModifier { kind: Some(kind) }),
        ..redirect
    })
}

pub(super) fn direct_response(answer: &ProxyDirectResponse) -> Result<Action, RouteFault> {
    let ProxyDirectResponse { status_code, body } = answer;
    let fault = |why| (("RouteError", "DirectResponseNotValid"), why);
    let Ok(status @ 200..=599) = u32::try_from(*status_code) else {
        let why = format!("directResponsePolicy.statusCode {status_code}; expected 200 to 599");
        return Err(fault(why));
    };
    let field = "directResponsePolicy.body";
    limits::max_bytes(field, body, DirectResponse::MAX_BODY).map_err(fault)?;
    Ok(Action::Respond(DirectResponse {
        status,
        body: body.clone(),
        content_type: String::new(),
    }))
}
