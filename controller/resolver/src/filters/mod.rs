//! Reads the filters of rules and backend references, and groups them by effect.
//!
//! A filter that cannot be served is never skipped: requests that match its rule get an error
//! response.

pub(crate) mod cors;
pub(crate) mod external_auth;
pub(crate) mod headers;
pub(crate) mod injected;
pub(crate) mod rewrites;
pub(crate) mod route_filter;
mod transcoding;

use std::sync::Arc;

use sesame_proto::refusal;
use sesame_proto::schema::{self, AddressRange, DirectResponse, SharedFilter};

use self::external_auth::AuthorizeBy;
use self::injected::Injected;
use self::rewrites::{BackendRewrites, RedirectTo};
use self::route_filter::FilterScope;
use crate::syntax::limits;
use sesame_kinds::api::{BackendRef, Filter, FilterType, Fraction, RequestMirror};
use sesame_kinds::status::{Grounds, Reason, unsupported};

fn incompatible(message: impl Into<String>) -> Grounds {
    (Reason::IncompatibleFilters, message.into())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// The filter does not exist or is invalid.
    Extension(String),
    Type(String),
}

#[derive(Debug, Default)]
pub(crate) struct RuleFilters<'w> {
    pub(crate) request_headers: Option<schema::HeaderModifier>,
    pub(crate) response_headers: Option<schema::HeaderModifier>,
    pub(crate) mirrors: Vec<MirrorTo<'w>>,
    pub(crate) redirect: Option<RedirectTo>,
    pub(crate) rewrite: Option<schema::UrlRewrite>,
    pub(crate) cors: Option<schema::Cors>,
    pub(crate) external_auth: Option<AuthorizeBy<'w>>,
    pub(crate) response: Option<DirectResponse>,
    /// Overrides all other responses.
    pub(crate) maintenance: Option<DirectResponse>,
    pub(crate) own: OwnFilters,
    /// Seconds until the end of the maintenance; added to `response_headers`.
    pub(crate) retry_after: Option<u64>,
    pub(crate) unserved: Option<Unserved>,
}

/// RouteFilters that act on requests which the rule forwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnFilters {
    pub(crate) injected: Option<Injected>,
    /// Translates JSON to gRPC.
    pub(crate) transcoder: Option<Arc<SharedFilter>>,
    pub(crate) maintenance: Option<PartialMaintenance>,
}

/// Maintenance for all clients except some.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartialMaintenance {
    pub(crate) page: Arc<SharedFilter>,
    pub(crate) except: Vec<AddressRange>,
}

impl<'w> RuleFilters<'w> {
    /// The caller has checked that the field for the filter's type is set.
    fn add(
        &mut self,
        i: usize,
        filter: &'w Filter,
        one_prefix: bool,
        scope: &mut FilterScope<'_, '_>,
    ) -> Result<(), Grounds> {
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
        let member = member(type_).unwrap_or_default();
        let below = |why: String| unsupported(format!("filters[{i}].{member}.{why}"));
        if let Some(modifier) = request_header_modifier {
            self.request_headers = Some(headers::read(modifier).map_err(below)?);
        }
        if let Some(modifier) = response_header_modifier {
            self.response_headers = Some(headers::read(modifier).map_err(below)?);
        }
        if let Some(mirror) = request_mirror {
            self.mirrors.push(read_mirror(i, mirror).map_err(below)?);
        }
        if let Some(redirect) = request_redirect {
            let redirect = rewrites::read_redirect(redirect, one_prefix);
            self.set_redirect(i, redirect.map_err(below)?)?;
        }
        if let Some(rewrite) = url_rewrite {
            let rewrite = rewrites::read_rewrite(rewrite, one_prefix);
            self.add_rewrite(i, rewrite.map_err(below)?)?;
        }
        if let Some(cors) = cors {
            self.cors = Some(cors::read(cors).map_err(below)?);
        }
        if let Some(auth) = external_auth {
            // Keep the rule: if it were dropped, its requests might match a rule without
            // authorization.
            match external_auth::read(i, auth) {
                Ok(auth) => self.external_auth = Some(auth),
                Err(why) => {
                    let why = format!("filters[{i}].{member}.{why}");
                    self.unserved = Some(Unserved::Type(why));
                }
            }
        }
        if let Some(reference) = extension_ref {
            match route_filter::read(reference, scope) {
                Ok(effect) => self.apply(i, effect)?,
                Err(why) => {
                    self.unserved.get_or_insert(Unserved::Extension(format!(
                        "filters[{i}].extensionRef: {why}; requests get {}",
                        refusal::HTTP
                    )));
                }
            }
        }
        if let FilterType::Other(_) = type_ {
            // Never serve the rule without this filter, because the filter might restrict access.
            self.unserved = Some(Unserved::Type(format!(
                "filters[{i}].type {:?} is not supported",
                type_.as_str()
            )));
        }
        Ok(())
    }

    fn set_redirect(&mut self, i: usize, redirect: RedirectTo) -> Result<(), Grounds> {
        only(i, "redirect", &mut self.redirect, redirect)
    }

    fn add_rewrite(&mut self, i: usize, rewrite: schema::UrlRewrite) -> Result<(), Grounds> {
        let both = match &self.rewrite {
            Some(first) => route_filter::merge(rewrite, first),
            None => Some(rewrite),
        };
        self.rewrite = Some(both.ok_or_else(|| {
            incompatible(format!(
                "filters[{i}]: another filter rewrites the same part of the request"
            ))
        })?);
        Ok(())
    }
}

/// Returns true if no other route may receive the rule's requests.
pub(crate) fn protect(filters: &[Filter], backends: &[BackendRef]) -> bool {
    let backend_filters = backends.iter().flat_map(|backend| &backend.filters);
    filters.iter().chain(backend_filters).any(|filter| {
        let is_protecting_type = matches!(
            filter.type_,
            FilterType::ExternalAuth | FilterType::ExtensionRef | FilterType::Other(_)
        );
        is_protecting_type || filter.external_auth.is_some() || filter.extension_ref.is_some()
    })
}

/// A mirror whose backend is not resolved yet.
#[derive(Debug)]
pub(crate) struct MirrorTo<'w> {
    pub(crate) index: usize,
    pub(crate) backend: &'w BackendRef,
    pub(crate) numerator: u32,
    pub(crate) denominator: u32,
}

/// `one_prefix` means that the rule has a single PathPrefix match, which prefix replacement
/// requires.
pub(crate) fn read<'w>(
    filters: &'w [Filter],
    one_prefix: bool,
    mut scope: FilterScope<'_, '_>,
) -> Result<RuleFilters<'w>, Grounds> {
    limits::entries("filters", filters.len(), 0..=limits::MAX_FILTERS).map_err(unsupported)?;
    let mut found = RuleFilters::default();
    let mut seen: Vec<&FilterType> = Vec::new();
    for (i, filter) in filters.iter().enumerate() {
        check_union(filter).map_err(|why| unsupported(format!("filters[{i}].{why}")))?;
        let type_ = &filter.type_;
        let repeatable = matches!(
            type_,
            FilterType::RequestMirror | FilterType::ExtensionRef | FilterType::Other(_)
        );
        if !repeatable && seen.contains(&type_) {
            return Err(incompatible(format!(
                "filters[{i}]: {type_} is listed twice"
            )));
        }
        seen.push(type_);
        found.add(i, filter, one_prefix, &mut scope)?;
    }
    found.announce_retry();
    if found.redirect.is_some() && found.rewrite.is_some() {
        return Err(incompatible(
            "filters: RequestRedirect and URLRewrite cannot be combined",
        ));
    }
    if found.redirect.is_some() && !found.mirrors.is_empty() {
        return Err(incompatible(
            "filters: RequestRedirect and RequestMirror cannot be combined, because nothing is \
            forwarded",
        ));
    }
    let rewrites_path = found.rewrite.as_ref().is_some_and(|it| it.path.is_some());
    if found.own.transcoder.is_some() && rewrites_path {
        return Err(incompatible(
            "filters: a RouteFilter with grpcJSONTranscoding cannot be combined with path rewrites, \
            because it selects the path of the gRPC method",
        ));
    }
    let forwards = found.rewrite.is_some() || !found.mirrors.is_empty();
    if found.response.is_some() && (forwards || found.redirect.is_some()) {
        return Err(incompatible(
            "filters: a RouteFilter with directResponse cannot be combined with redirects, rewrites \
            and mirrors, because it responds to every request",
        ));
    }
    Ok(found)
}

#[derive(Debug, Default)]
pub(crate) struct BackendFilters {
    pub(crate) request_headers: Option<schema::HeaderModifier>,
    pub(crate) response_headers: Option<schema::HeaderModifier>,
    pub(crate) rewrite: Option<schema::UrlRewrite>,
}

pub(crate) fn read_backend(
    filters: &[Filter],
    rewrites: BackendRewrites,
) -> Result<BackendFilters, Grounds> {
    let mut found = BackendFilters::default();
    limits::entries("filters", filters.len(), 0..=limits::MAX_FILTERS).map_err(unsupported)?;
    for (i, filter) in filters.iter().enumerate() {
        let at = |why: String| unsupported(format!("filters[{i}].{why}"));
        check_union(filter).map_err(at)?;
        let type_ = &filter.type_;
        let below = |why: String| at(format!("{}.{why}", member(type_).unwrap_or_default()));
        let is_first = match (type_, rewrites) {
            (FilterType::RequestHeaderModifier, _) => {
                let spec = filter.request_header_modifier.as_deref();
                let headers = spec.map(headers::read).transpose().map_err(below)?;
                replace(&mut found.request_headers, headers)
            }
            (FilterType::ResponseHeaderModifier, _) => {
                let spec = filter.response_header_modifier.as_deref();
                let headers = spec.map(headers::read).transpose().map_err(below)?;
                replace(&mut found.response_headers, headers)
            }
            (FilterType::UrlRewrite, BackendRewrites::Supported { one_prefix }) => {
                let spec = filter.url_rewrite.as_ref();
                let rewrite = spec.map(|spec| rewrites::read_rewrite(spec, one_prefix));
                replace(&mut found.rewrite, rewrite.transpose().map_err(below)?)
            }
            (FilterType::ExtensionRef, _) => {
                let message = format!("filters[{i}].extensionRef is not a supported filter");
                return Err((Reason::InvalidKind, message));
            }
            (other, _) => {
                let expected = match rewrites {
                    BackendRewrites::Unsupported => {
                        "RequestHeaderModifier or ResponseHeaderModifier"
                    }
                    BackendRewrites::Supported { .. } => {
                        "RequestHeaderModifier, ResponseHeaderModifier or URLRewrite"
                    }
                };
                return Err(at(format!(
                    "type {:?} is not supported on a backend; expected {expected}",
                    other.as_str()
                )));
            }
        };
        if !is_first {
            return Err(incompatible(format!(
                "filters[{i}]: {type_} is listed twice"
            )));
        }
    }
    Ok(found)
}

fn only<T>(i: usize, what: &str, slot: &mut Option<T>, new: T) -> Result<(), Grounds> {
    if replace(slot, Some(new)) {
        return Ok(());
    }
    let message = format!("filters[{i}]: only one {what} is allowed");
    Err(incompatible(message))
}

/// Returns false if `slot` already had a value.
fn replace<T>(slot: &mut Option<T>, new: Option<T>) -> bool {
    let before = std::mem::replace(slot, new);
    before.is_none()
}

fn member(type_: &FilterType) -> Option<&'static str> {
    Some(match type_ {
        FilterType::RequestHeaderModifier => "requestHeaderModifier",
        FilterType::ResponseHeaderModifier => "responseHeaderModifier",
        FilterType::RequestMirror => "requestMirror",
        FilterType::RequestRedirect => "requestRedirect",
        FilterType::UrlRewrite => "urlRewrite",
        FilterType::Cors => "cors",
        FilterType::ExternalAuth => "externalAuth",
        FilterType::ExtensionRef => "extensionRef",
        FilterType::Other(_) => return None,
    })
}

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
        ("requestHeaderModifier", request_header_modifier.is_some()),
        ("responseHeaderModifier", response_header_modifier.is_some()),
        ("requestMirror", request_mirror.is_some()),
        ("requestRedirect", request_redirect.is_some()),
        ("urlRewrite", url_rewrite.is_some()),
        ("cors", cors.is_some()),
        ("externalAuth", external_auth.is_some()),
        ("extensionRef", extension_ref.is_some()),
    ];
    let own = member(type_);
    for (field, set) in members {
        match (own == Some(field), set) {
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
        (Some(_), Some(_)) => return Err("percent and fraction cannot be combined".to_owned()),
        (None, None) => (100, 100),
        (Some(percent), None) => (*percent, 100),
        (None, Some(fraction)) => {
            let Fraction {
                numerator,
                denominator,
            } = fraction;
            (*numerator, denominator.unwrap_or(100))
        }
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
