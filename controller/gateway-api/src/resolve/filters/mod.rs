//! Filters of a rule and of a backend, checked and sorted by their effect.
//!
//! The objects that a filter refers to are looked up elsewhere. A filter that cannot be served is never skipped: its
//! requests get an error instead.

pub(crate) mod cors;
pub(crate) mod headers;
pub(crate) mod rewrites;

use sesame_proto::{refusal, schema};

use self::rewrites::RedirectTo;
use crate::api::{BackendRef, Filter, FilterType, Fraction, RequestMirror};
use crate::status::Reason;

/// The reason why a rule cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleFault {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl RuleFault {
    pub(crate) fn unsupported(message: String) -> Self {
        Self {
            reason: Reason::UnsupportedValue,
            message,
        }
    }

    fn incompatible(message: String) -> Self {
        Self {
            reason: Reason::IncompatibleFilters,
            message,
        }
    }
}

/// A filter that is refused with an error at request time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// An ExtensionRef: a reference that resolves to nothing.
    Extension(String),
    /// A type that is not supported.
    Type(String),
}

/// All filters of one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleFilters<'w> {
    pub(crate) request_headers: Option<schema::HeaderModifier>,
    pub(crate) response_headers: Option<schema::HeaderModifier>,
    pub(crate) mirrors: Vec<MirrorTo<'w>>,
    pub(crate) redirect: Option<RedirectTo>,
    pub(crate) rewrite: Option<schema::UrlRewrite>,
    pub(crate) cors: Option<schema::Cors>,
    pub(crate) unserved: Option<Unserved>,
}

/// A mirror whose backend is still to be looked up.
#[derive(Debug)]
pub(crate) struct MirrorTo<'w> {
    /// Place among the rule's filters.
    pub(crate) index: usize,
    pub(crate) backend: &'w BackendRef,
    pub(crate) numerator: u32,
    pub(crate) denominator: u32,
}

/// Reads the filters of a rule. `one_prefix` is true if the rule has exactly one match and that is a PathPrefix: only then
/// a prefix can be replaced.
pub(crate) fn read(filters: &[Filter], one_prefix: bool) -> Result<RuleFilters<'_>, RuleFault> {
    if filters.len() > 16 {
        return Err(RuleFault::unsupported(format!(
            "filters has {} entries; at most 16 are allowed",
            filters.len()
        )));
    }
    let mut found = RuleFilters::default();
    let mut seen: Vec<&FilterType> = Vec::new();
    for (i, filter) in filters.iter().enumerate() {
        let at = |why: String| RuleFault::unsupported(format!("filters[{i}].{why}"));
        check_union(filter).map_err(at)?;
        let Filter {
            type_,
            request_header_modifier,
            response_header_modifier,
            request_mirror,
            request_redirect,
            url_rewrite,
            cors,
            external_auth: _,
            extension_ref,
        } = filter;
        let repeatable = matches!(
            type_,
            FilterType::RequestMirror | FilterType::ExtensionRef | FilterType::Other(_)
        );
        if !repeatable && seen.contains(&type_) {
            return Err(RuleFault::incompatible(format!(
                "filters[{i}]: {type_} is there twice"
            )));
        }
        seen.push(type_);
        if let Some(modifier) = request_header_modifier {
            let read = headers::read(modifier);
            found.request_headers =
                Some(read.map_err(|why| at(format!("requestHeaderModifier.{why}")))?);
        }
        if let Some(modifier) = response_header_modifier {
            let read = headers::read(modifier);
            found.response_headers =
                Some(read.map_err(|why| at(format!("responseHeaderModifier.{why}")))?);
        }
        if let Some(mirror) = request_mirror {
            let read = read_mirror(i, mirror);
            found
                .mirrors
                .push(read.map_err(|why| at(format!("requestMirror.{why}")))?);
        }
        if let Some(redirect) = request_redirect {
            let read = rewrites::read_redirect(redirect, one_prefix);
            found.redirect = Some(read.map_err(|why| at(format!("requestRedirect.{why}")))?);
        }
        if let Some(rewrite) = url_rewrite {
            let read = rewrites::read_rewrite(rewrite, one_prefix);
            found.rewrite = Some(read.map_err(|why| at(format!("urlRewrite.{why}")))?);
        }
        if let Some(cors) = cors {
            let read = cors::read(cors);
            found.cors = Some(read.map_err(|why| at(format!("cors.{why}")))?);
        }
        match type_ {
            FilterType::ExtensionRef => {
                let (kind, name) = extension_ref
                    .as_ref()
                    .map(|reference| {
                        (
                            reference.kind.as_deref().unwrap_or_default(),
                            reference.name.as_str(),
                        )
                    })
                    .unwrap_or_default();
                found.unserved.get_or_insert(Unserved::Extension(format!(
                    "filters[{i}].extensionRef: {kind} {name:?} is not a filter that is supported; requests are \
                     answered with {}",
                    refusal::HTTP
                )));
            }
            FilterType::ExternalAuth | FilterType::Other(_) => {
                // A rule that lost its check must not be served without it.
                found.unserved = Some(Unserved::Type(format!(
                    "filters[{i}].type {:?} is not supported",
                    type_.as_str()
                )));
            }
            _ => {}
        }
    }
    if found.redirect.is_some() && found.rewrite.is_some() {
        return Err(RuleFault::incompatible(
            "filters: RequestRedirect and URLRewrite exclude each other".to_owned(),
        ));
    }
    if found.redirect.is_some() && !found.mirrors.is_empty() {
        return Err(RuleFault::incompatible(
            "filters: RequestRedirect and RequestMirror exclude each other, because nothing is forwarded".to_owned(),
        ));
    }
    Ok(found)
}

/// Header modifiers of a backend, for the request and the response.
type BackendModifiers = (
    Option<schema::HeaderModifier>,
    Option<schema::HeaderModifier>,
);

/// Reads the filters of one backend reference; only header modifiers are served there.
pub(crate) fn read_backend(filters: &[Filter]) -> Result<BackendModifiers, RuleFault> {
    let mut modifiers: BackendModifiers = (None, None);
    if filters.len() > 16 {
        return Err(RuleFault::unsupported(format!(
            "filters has {} entries; at most 16 are allowed",
            filters.len()
        )));
    }
    for (i, filter) in filters.iter().enumerate() {
        let at = |why: String| RuleFault::unsupported(format!("filters[{i}].{why}"));
        check_union(filter).map_err(at)?;
        let (slot, spec, field) = match filter.type_ {
            FilterType::RequestHeaderModifier => (
                &mut modifiers.0,
                &filter.request_header_modifier,
                "requestHeaderModifier",
            ),
            FilterType::ResponseHeaderModifier => (
                &mut modifiers.1,
                &filter.response_header_modifier,
                "responseHeaderModifier",
            ),
            FilterType::ExtensionRef => {
                return Err(RuleFault {
                    reason: Reason::InvalidKind,
                    message: format!("filters[{i}].extensionRef is not a filter that is supported"),
                });
            }
            ref other => {
                return Err(at(format!(
                    "type {:?} is not supported on a backend; expected RequestHeaderModifier or \
                     ResponseHeaderModifier",
                    other.as_str()
                )));
            }
        };
        if slot.is_some() {
            return Err(RuleFault::incompatible(format!(
                "filters[{i}]: {} is there twice",
                filter.type_
            )));
        }
        if let Some(spec) = spec {
            *slot = Some(headers::read(spec).map_err(|why| at(format!("{field}.{why}")))?);
        }
    }
    Ok(modifiers)
}

/// Returns an error unless exactly the member that `type` names is set.
fn check_union(filter: &Filter) -> Result<(), String> {
    let Filter {
        type_,
        request_header_modifier,
        response_header_modifier,
        request_mirror,
        request_redirect,
        url_rewrite,
        cors,
        external_auth,
        extension_ref,
    } = filter;
    let members = [
        (
            FilterType::RequestHeaderModifier,
            "requestHeaderModifier",
            request_header_modifier.is_some(),
        ),
        (
            FilterType::ResponseHeaderModifier,
            "responseHeaderModifier",
            response_header_modifier.is_some(),
        ),
        (
            FilterType::RequestMirror,
            "requestMirror",
            request_mirror.is_some(),
        ),
        (
            FilterType::RequestRedirect,
            "requestRedirect",
            request_redirect.is_some(),
        ),
        (FilterType::UrlRewrite, "urlRewrite", url_rewrite.is_some()),
        (FilterType::Cors, "cors", cors.is_some()),
        (
            FilterType::ExternalAuth,
            "externalAuth",
            external_auth.is_some(),
        ),
        (
            FilterType::ExtensionRef,
            "extensionRef",
            extension_ref.is_some(),
        ),
    ];
    for (member, field, set) in members {
        match (member == *type_, set) {
            (true, false) => return Err(format!("{field} is required with type {type_}")),
            (false, true) => {
                return Err(format!(
                    "{field} must not be set with type {:?}",
                    type_.as_str()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_mirror(index: usize, spec: &RequestMirror) -> Result<MirrorTo<'_>, String> {
    let RequestMirror {
        backend_ref,
        percent,
        fraction,
    } = spec;
    let (numerator, denominator) = match (percent, fraction) {
        (Some(_), Some(_)) => return Err("percent and fraction exclude each other".to_owned()),
        (None, None) => (100, 100),
        (Some(percent), None) => (*percent, 100),
        (
            None,
            Some(Fraction {
                numerator,
                denominator,
            }),
        ) => (*numerator, denominator.unwrap_or(100)),
    };
    let ends = (u32::try_from(numerator), u32::try_from(denominator));
    let (Ok(numerator), Ok(denominator @ 1..)) = ends else {
        return Err(format!(
            "share {numerator}/{denominator} is out of range; expected 0 to 100 percent"
        ));
    };
    if numerator > denominator {
        return Err(format!("share {numerator}/{denominator} is above 1"));
    }
    Ok(MirrorTo {
        index,
        backend: backend_ref,
        numerator,
        denominator,
    })
}
