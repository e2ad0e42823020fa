//! Reads RouteFilters, which rules reference in `extensionRef`.

use sesame_proto::schema::{self, DirectResponse, path_modifier};

use super::rewrites::{RedirectTo, read_redirect};
use crate::api::{
    FilterRedirect, FilterResponse, FilterRewrite, FilterSubstitution, ObjectRef, RequestRedirect,
    RouteFilterSpec,
};
use crate::resolve::syntax::regexes::Regexes;
use crate::resolve::syntax::{limits, names};
use crate::world::{Kind, World};

pub(crate) struct FilterScope<'a, 'w> {
    pub(crate) world: &'w World,
    pub(crate) namespace: &'a str,
    pub(crate) regexes: &'a mut Regexes,
}

#[derive(Debug, PartialEq)]
pub(crate) enum FilterEffect {
    Respond(DirectResponse),
    Rewrite(schema::UrlRewrite),
    Redirect(RedirectTo),
}

/// The caller prefixes errors with `extensionRef: `.
pub(super) fn read(
    reference: &ObjectRef,
    scope: Option<&mut FilterScope<'_, '_>>,
) -> Result<FilterEffect, String> {
    let ObjectRef {
        group,
        kind,
        name,
        // `extensionRef` has no namespace: the filter must be in the route's namespace.
        namespace: _,
    } = reference;
    let (group, kind) = (group.as_deref(), kind.as_deref());
    let own = Kind::RouteFilter;
    let is_own =
        group == Some(own.group()) && kind == Some(own.as_str()) && reference.namespace.is_none();
    let scope = scope.filter(|_| is_own).ok_or_else(|| {
        let kind = kind.unwrap_or_default();
        format!("{kind} {name:?} is not a supported filter")
    })?;
    let namespace = scope.namespace;
    let Some(filter) = scope.world.route_filters.get(namespace, name) else {
        return Err(format!("RouteFilter {namespace}/{name} does not exist"));
    };
    let effect = match filter.metadata.unknown.refusal("") {
        Some(why) => Err(why),
        None => effect(&filter.spec, scope.regexes).map_err(|why| format!("spec.{why}")),
    };
    effect.map_err(|why| format!("RouteFilter {namespace}/{name}: {why}"))
}

fn effect(spec: &RouteFilterSpec, regexes: &mut Regexes) -> Result<FilterEffect, String> {
    let RouteFilterSpec {
        direct_response,
        url_rewrite,
        request_redirect,
    } = spec;
    match (direct_response, url_rewrite, request_redirect) {
        (Some(response), None, None) => respond(response)
            .map(FilterEffect::Respond)
            .map_err(|why| format!("directResponse.{why}")),
        (None, Some(rewrite), None) => self::rewrite(rewrite, regexes)
            .map(FilterEffect::Rewrite)
            .map_err(|why| format!("urlRewrite.{why}")),
        (None, None, Some(redirect)) => self::redirect(redirect, regexes)
            .map(FilterEffect::Redirect)
            .map_err(|why| format!("requestRedirect.{why}")),
        _ => {
            Err("expected exactly one of directResponse, urlRewrite and requestRedirect".to_owned())
        }
    }
}

fn respond(spec: &FilterResponse) -> Result<DirectResponse, String> {
    let FilterResponse {
        status_code,
        body,
        content_type,
    } = spec;
    let Ok(status @ 200..=599) = u32::try_from(*status_code) else {
        return Err(format!("statusCode {status_code}: expected 200 to 599"));
    };
    let body = body.clone().unwrap_or_default();
    if body.len() > DirectResponse::MAX_BODY {
        let most = DirectResponse::MAX_BODY;
        let length = body.len();
        return Err(format!(
            "body has {length} bytes; at most {most} are allowed"
        ));
    }
    if let Some(media_type) = content_type {
        limits::max_bytes("contentType", media_type, 256)?;
        if media_type.is_empty() || !names::is_field_value(media_type) {
            return Err(format!(
                "contentType {media_type:?}: expected a media type such as text/html"
            ));
        }
    }
    Ok(DirectResponse {
        status,
        body,
        content_type: content_type.clone().unwrap_or_default(),
    })
}

fn rewrite(spec: &FilterRewrite, regexes: &mut Regexes) -> Result<schema::UrlRewrite, String> {
    let FilterRewrite {
        regex,
        host_from_header,
    } = spec;
    if regex.is_none() && host_from_header.is_none() {
        return Err("regex or urlRewrite.hostFromHeader is required".to_owned());
    }
    if let Some(name) = host_from_header {
        names::check_token(format_args!("hostFromHeader"), name)?;
    }
    let path = regex.as_ref().map(|regex| substitution(regex, regexes));
    Ok(schema::UrlRewrite {
        host: String::new(),
        path: path.transpose()?,
        host_header: host_from_header
            .as_deref()
            .unwrap_or_default()
            .to_lowercase(),
    })
}

fn redirect(spec: &FilterRedirect, regexes: &mut Regexes) -> Result<RedirectTo, String> {
    let FilterRedirect {
        regex,
        scheme,
        hostname,
        port,
        status_code,
    } = spec;
    let standard = RequestRedirect {
        scheme: scheme.clone(),
        hostname: hostname.clone(),
        path: None,
        port: *port,
        status_code: *status_code,
    };
    Ok(RedirectTo {
        path: Some(substitution(regex, regexes)?),
        ..read_redirect(&standard, false)?
    })
}

pub(crate) fn substitution(
    spec: &FilterSubstitution,
    regexes: &mut Regexes,
) -> Result<schema::PathModifier, String> {
    let FilterSubstitution {
        pattern,
        substitution,
    } = spec;
    let regex = schema::RegexSubstitution {
        pattern: pattern.clone(),
        substitution: substitution.clone(),
    };
    let literal = regex.literal().map_err(|why| format!("regex.{why}"))?;
    regexes
        .check(pattern)
        .map_err(|why| format!("regex.pattern {pattern:?} {why}"))?;
    names::check_path("regex.substitution", &literal)?;
    Ok(schema::PathModifier {
        kind: Some(path_modifier::Kind::Regex(regex)),
    })
}

/// Returns `None` if both set the host or both set the path.
pub(super) fn merge(
    one: schema::UrlRewrite,
    other: &schema::UrlRewrite,
) -> Option<schema::UrlRewrite> {
    let sets_host = |it: &schema::UrlRewrite| !(it.host.is_empty() && it.host_header.is_empty());
    let overlap = sets_host(&one) && sets_host(other) || one.path.is_some() && other.path.is_some();
    let text = |one: String, other: &String| if one.is_empty() { other.clone() } else { one };
    (!overlap).then(|| schema::UrlRewrite {
        host: text(one.host, &other.host),
        path: one.path.or_else(|| other.path.clone()),
        host_header: text(one.host_header, &other.host_header),
    })
}
