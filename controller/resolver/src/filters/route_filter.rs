//! Reads RouteFilters, which rules reference in `extensionRef`.

use std::sync::Arc;

use sesame_proto::schema::{
    self, DirectResponse, MaintenancePage as Page, SharedFilter, path_modifier, shared_filter,
};

use super::injected::{self, Injected};
use super::rewrites::{RedirectTo, read_redirect};
use super::{PartialMaintenance, RuleFilters, incompatible, only, transcoding};
use crate::context::Options;
use crate::context::filter_cache::FilterCache;
use crate::policies::traffic::addresses::read_networks;
use crate::syntax::regexes::Regexes;
use crate::syntax::{durations, limits, names};
use sesame_kinds::api::{
    FilterRedirect, FilterResponse, FilterRewrite, FilterSubstitution, MaintenancePage, ObjectRef,
    RequestRedirect, RouteFilterSpec,
};
use sesame_kinds::status::Grounds;
use sesame_kinds::world::{Kind, World};

const MAINTENANCE: &str = "maintenance response";

pub(crate) struct FilterScope<'a, 'w> {
    pub(crate) world: &'w World,
    pub(crate) options: &'a Options,
    pub(crate) namespace: &'a str,
    pub(crate) regexes: &'a mut Regexes,
    pub(crate) filters: &'a mut FilterCache,
    /// True for gRPC, whose clients understand neither pages nor redirects.
    pub(crate) grpc: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum FilterEffect {
    Respond(DirectResponse),
    Rewrite(schema::UrlRewrite),
    Redirect(RedirectTo),
    Maintain(Maintenance),
    MaintainExcept(PartialMaintenance),
    Inject(Injected),
    Transcode(Arc<SharedFilter>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Maintenance {
    pub(crate) response: DirectResponse,
    pub(crate) retry_after_seconds: Option<u64>,
}

impl RuleFilters<'_> {
    pub(super) fn apply(&mut self, i: usize, effect: FilterEffect) -> Result<(), Grounds> {
        match effect {
            FilterEffect::Rewrite(rewrite) => self.add_rewrite(i, rewrite),
            FilterEffect::Redirect(redirect) => self.set_redirect(i, redirect),
            FilterEffect::Respond(response) => only(i, "response", &mut self.response, response),
            FilterEffect::Inject(injected) => {
                only(i, "credential", &mut self.own.injected, injected)
            }
            FilterEffect::Transcode(filter) => {
                let slot = &mut self.own.transcoder;
                only(i, "RouteFilter with grpcJSONTranscoding", slot, filter)
            }
            FilterEffect::MaintainExcept(maintenance) => {
                only(i, MAINTENANCE, &mut self.own.maintenance, maintenance)?;
                self.check_maintenance(i)
            }
            FilterEffect::Maintain(Maintenance {
                response,
                retry_after_seconds,
            }) => {
                self.retry_after = retry_after_seconds;
                only(i, MAINTENANCE, &mut self.maintenance, response)?;
                self.check_maintenance(i)
            }
        }
    }

    fn check_maintenance(&self, i: usize) -> Result<(), Grounds> {
        if self.maintenance.is_some() && self.own.maintenance.is_some() {
            return Err(incompatible(format!(
                "filters[{i}]: only one {MAINTENANCE} is allowed"
            )));
        }
        Ok(())
    }

    /// The rule's own header takes precedence.
    pub(super) fn announce_retry(&mut self) {
        const NAME: &str = "retry-after";
        let Some(seconds) = self.retry_after.take() else {
            return;
        };
        let headers = self.response_headers.get_or_insert_default();
        if !headers
            .set
            .iter()
            .any(|it| it.name.eq_ignore_ascii_case(NAME))
        {
            headers.set.push(schema::Header {
                name: NAME.to_owned(),
                value: seconds.to_string(),
                parts: Vec::new(),
            });
        }
    }
}

/// The caller prefixes errors with `extensionRef: `.
pub(super) fn read(
    reference: &ObjectRef,
    scope: &mut FilterScope<'_, '_>,
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
    if !is_own {
        let kind = kind.unwrap_or_default();
        return Err(format!("{kind} {name:?} is not a supported filter"));
    }
    let namespace = scope.namespace;
    let Some(filter) = scope.world.route_filters.get(namespace, name) else {
        return Err(format!("RouteFilter {namespace}/{name} does not exist"));
    };
    let effect = match filter.metadata.unknown.refusal("") {
        Some(why) => Err(why),
        None => effect(&filter.spec, name, scope).map_err(|why| format!("spec.{why}")),
    };
    effect.map_err(|why| format!("RouteFilter {namespace}/{name}: {why}"))
}

fn effect(
    spec: &RouteFilterSpec,
    name: &str,
    scope: &mut FilterScope<'_, '_>,
) -> Result<FilterEffect, String> {
    let RouteFilterSpec {
        direct_response,
        url_rewrite,
        request_redirect,
        maintenance,
        credential_injection,
        grpc_json_transcoding,
    } = spec;
    let http_only = [
        ("directResponse", direct_response.is_some()),
        ("urlRewrite", url_rewrite.is_some()),
        ("requestRedirect", request_redirect.is_some()),
        ("grpcJSONTranscoding", grpc_json_transcoding.is_some()),
    ];
    if let Some((field, _)) = http_only.iter().find(|(_, is_set)| scope.grpc && *is_set) {
        return Err(format!(
            "{field} is not supported in a GRPCRoute; expected maintenance or credentialInjection"
        ));
    }
    let filter = format!("{}/{}/{name}", Kind::RouteFilter.as_str(), scope.namespace);
    let transcoder = grpc_json_transcoding.as_ref().map(|spec| {
        let effect = transcoding::read(spec, &filter, scope).map(FilterEffect::Transcode);
        effect.map_err(|why| format!("grpcJSONTranscoding.{why}"))
    });
    let regexes = &mut *scope.regexes;
    let parts = [
        direct_response.as_ref().map(|spec| {
            let effect = respond(spec).map(FilterEffect::Respond);
            effect.map_err(|why| format!("directResponse.{why}"))
        }),
        url_rewrite.as_ref().map(|spec| {
            let effect = rewrite(spec, regexes).map(FilterEffect::Rewrite);
            effect.map_err(|why| format!("urlRewrite.{why}"))
        }),
        request_redirect.as_ref().map(|spec| {
            let effect = redirect(spec, regexes).map(FilterEffect::Redirect);
            effect.map_err(|why| format!("requestRedirect.{why}"))
        }),
        maintenance.as_ref().map(|spec| {
            let effect = maintain(spec, &filter, scope.filters);
            effect.map_err(|why| format!("maintenance.{why}"))
        }),
        credential_injection.as_ref().map(|spec| {
            let effect = injected::read(spec, name, scope);
            let effect = effect.map(FilterEffect::Inject);
            effect.map_err(|why| format!("credentialInjection.{why}"))
        }),
        transcoder,
    ];
    let mut parts = parts.into_iter().flatten();
    match (parts.next(), parts.next()) {
        (Some(effect), None) => effect,
        _ => Err(
            "expected exactly one of directResponse, urlRewrite, requestRedirect, maintenance, \
             credentialInjection and grpcJSONTranscoding"
                .to_owned(),
        ),
    }
}

fn maintain(
    spec: &MaintenancePage,
    filter: &str,
    filters: &mut FilterCache,
) -> Result<FilterEffect, String> {
    let MaintenancePage {
        retry_after,
        body,
        content_type,
        except_clients,
    } = spec;
    let content_type = content_type.as_deref().unwrap_or("text/html");
    let response = respond(&FilterResponse {
        status_code: 503,
        body: body.clone(),
        content_type: Some(content_type.to_owned()),
    })?;
    let retry_after = durations::read("retryAfter", retry_after.as_deref())?;
    if retry_after.is_some_and(|it| it % 1_000 > 0) {
        return Err("retryAfter: expected whole seconds".to_owned());
    }
    let retry_after_seconds = retry_after.map(|it| it / 1_000);
    let except = read_networks("exceptClients", except_clients, false)?;
    if except.is_empty() {
        return Ok(FilterEffect::Maintain(Maintenance {
            response,
            retry_after_seconds,
        }));
    }
    let DirectResponse {
        status: _,
        body,
        content_type,
    } = response;
    let page = Page {
        body,
        content_type,
        retry_after_seconds: retry_after_seconds.unwrap_or(0),
    };
    let name = Page::name(filter);
    let page = SharedFilter {
        name: name.clone(),
        kind: Some(shared_filter::Kind::Maintenance(page)),
    };
    let page = filters.share(name, Ok(page))?;
    Ok(FilterEffect::MaintainExcept(PartialMaintenance {
        page,
        except,
    }))
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
