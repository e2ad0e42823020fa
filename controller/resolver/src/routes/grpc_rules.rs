//! Reads GRPCRoute rules.
//!
//! A gRPC method has the path `/package.Service/Method`. The matches accept only gRPC requests, so
//! other requests for the same hostname can still reach HTTPRoutes.

use sesame_proto::schema::path_match::Kind as PathKind;

use super::matches::{self, Grpc, RouteMatch};
use super::request_rules::{Forwarding, RequestRule, RequestTimeouts};
use super::rules::{CheckedRule, RouteRule, RuleContext, RuleOutcome, Rules};
use crate::filters::rewrites::BackendRewrites;
use crate::filters::route_filter::FilterScope;
use crate::filters::{self, Unserved};
use crate::syntax::limits;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{
    Filter, FilterType, GrpcMatch, GrpcMethodMatch, GrpcRule, StringMatchType,
};
use sesame_kinds::status::{Grounds, unsupported};

const ANY: &str = "[^/]+";

impl RouteRule for GrpcRule {
    type Checked = CheckedRule;

    /// A GRPCRoute without rules matches no requests.
    const DEFAULT: &'static [Self] = &[];

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// A rule without matches gets a default match.
    fn matches(&self) -> usize {
        self.matches.len().max(1)
    }

    fn protects(&self) -> bool {
        filters::protect(&self.filters, &self.backend_refs)
    }

    fn check<'w>(
        &'w self,
        index: usize,
        unknown: Option<String>,
        cx: &mut RuleContext<'_, 'w, '_>,
    ) -> Result<RuleOutcome<'w, CheckedRule>, Grounds> {
        let Self {
            name: _,
            matches,
            filters,
            backend_refs,
            session_persistence,
        } = self;
        let read = |spec: &GrpcMatch| read_match(spec, cx.regexes);
        let matches = matches::read_all(matches, any_call(), read).map_err(unsupported)?;
        let scope = FilterScope {
            world: cx.cx.world,
            options: cx.cx.options,
            namespace: cx.referrer.namespace,
            regexes: cx.regexes,
            filters: cx.cx.filters,
            grpc: true,
        };
        let mut read = filters::read(filters, false, scope)?;
        if let Some(why) = unserved(filters) {
            // Requests must not bypass the filter.
            read.unserved = Some(Unserved::Type(why));
        }
        cx.requests(RequestRule {
            index,
            name: RouteRule::name(self),
            matches,
            filters: read,
            protects: self.protects() || unknown.is_some(),
            unknown,
            forwarding: Forwarding {
                backend_refs,
                backend_rewrites: BackendRewrites::Unsupported,
                session_persistence: session_persistence.as_deref(),
                // gRPC clients set their own deadlines.
                timeouts: RequestTimeouts::default(),
                retry: None,
            },
        })
    }

    fn refusing(
        &self,
        index: usize,
        withheld: bool,
        cx: &mut RuleContext<'_, '_, '_>,
    ) -> Option<CheckedRule> {
        (withheld || self.protects()).then(|| {
            let read = |spec: &GrpcMatch| widened(spec, cx.regexes);
            let matches = matches::read_widened(&self.matches, any_call(), read);
            CheckedRule::refusing(index, matches)
        })
    }

    fn refusing_all(_cx: &RuleContext<'_, '_, '_>) -> CheckedRule {
        CheckedRule::refusing(0, vec![any_call()])
    }

    fn all(checked: Vec<CheckedRule>) -> Rules {
        Rules::Requests(checked)
    }
}

fn any_call() -> RouteMatch {
    RouteMatch {
        grpc: Some(Grpc::default()),
        ..RouteMatch::all()
    }
}

fn unserved(filters: &[Filter]) -> Option<String> {
    filters.iter().enumerate().find_map(|(i, filter)| {
        matches!(
            filter.type_,
            FilterType::RequestRedirect
                | FilterType::UrlRewrite
                | FilterType::Cors
                | FilterType::ExternalAuth
        )
        .then(|| {
            format!(
                "filters[{i}].type {:?} is not supported in a GRPCRoute",
                filter.type_.as_str()
            )
        })
    })
}

fn read_match(spec: &GrpcMatch, regexes: &mut Regexes) -> Result<RouteMatch, String> {
    let GrpcMatch { method, headers } = spec;
    let (path, grpc) = match method {
        None => (PathKind::Prefix(String::new()), Grpc::default()),
        Some(method) => read_method(method, regexes)?,
    };
    let mut instructions = match &path {
        PathKind::Regex(pattern) => regexes
            .check(pattern)
            .map_err(|why| format!("method as a path {pattern:?} {why}"))?,
        _ => 0,
    };
    Ok(RouteMatch {
        path,
        grpc: Some(grpc),
        headers: matches::read_headers(headers, regexes, &mut instructions)?,
        instructions,
        ..RouteMatch::all()
    })
}

/// Skips invalid parts, so the match covers every request that the author may have meant.
fn widened(spec: &GrpcMatch, regexes: &mut Regexes) -> RouteMatch {
    let GrpcMatch { method, headers } = spec;
    let mut part = |part: GrpcMatch| read_match(&part, regexes).unwrap_or_else(|_| any_call());
    let by_method = part(GrpcMatch {
        method: method.clone(),
        headers: Vec::new(),
    });
    let by_headers = part(GrpcMatch {
        method: None,
        headers: headers.clone(),
    });
    RouteMatch {
        headers: by_headers.headers,
        instructions: by_method.instructions + by_headers.instructions,
        ..by_method
    }
}

fn read_method(spec: &GrpcMethodMatch, regexes: &mut Regexes) -> Result<(PathKind, Grpc), String> {
    let GrpcMethodMatch {
        type_,
        service,
        method,
    } = spec;
    let service = service.as_deref().unwrap_or_default();
    let method = method.as_deref().unwrap_or_default();
    if service.is_empty() && method.is_empty() {
        return Err("method has neither service nor method; at least one is needed".to_owned());
    }
    for (field, value) in [("method.service", service), ("method.method", method)] {
        limits::max_bytes(field, value, 1024)?;
    }
    match type_ {
        None | Some(StringMatchType::Exact) => {
            if !(service.is_empty() || is_service(service)) {
                return Err(format!(
                    "method.service {service:?} is not the name of a service; expected names of \
                    letters, digits and '_', separated by dots"
                ));
            }
            if !(method.is_empty() || is_word(method)) {
                return Err(format!(
                    "method.method {method:?} is not the name of a method; expected letters, digits and '_', not starting with a digit"
                ));
            }
            let path = match (service, method) {
                ("", method) => PathKind::Regex(format!("/{ANY}/{method}")),
                (service, "") => PathKind::Prefix(format!("/{service}")),
                (service, method) => PathKind::Exact(format!("/{service}/{method}")),
            };
            Ok((path, Grpc::exact(service, method)))
        }
        Some(StringMatchType::RegularExpression) => {
            let mut part = |field: &str, pattern: &str| {
                if pattern.is_empty() {
                    return Ok(ANY.to_owned());
                }
                // Check each pattern alone first, because an unbalanced `)` could close the group
                // around the pattern.
                regexes
                    .check(pattern)
                    .map_err(|why| format!("method.{field} {pattern:?} {why}"))?;
                Ok::<_, String>(format!("(?:{pattern})"))
            };
            let pattern = format!("/{}/{}", part("service", service)?, part("method", method)?);
            Ok((PathKind::Regex(pattern), Grpc::regex(service, method)))
        }
        Some(StringMatchType::Other(other)) => Err(format!(
            "method.type {other:?} is unknown; expected Exact or RegularExpression"
        )),
    }
}

/// `^\.?word(\.word)*$`
fn is_service(text: &str) -> bool {
    text.strip_prefix('.')
        .unwrap_or(text)
        .split('.')
        .all(is_word)
}

/// `^[A-Za-z_][A-Za-z_0-9]*$`
fn is_word(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(
        type_: Option<StringMatchType>,
        service: &str,
        method: &str,
    ) -> Result<PathKind, String> {
        let spec = GrpcMethodMatch {
            type_,
            service: Some(service.into()),
            method: Some(method.into()),
        };
        read_method(&spec, &mut Regexes::default()).map(|(path, _)| path)
    }

    #[test]
    fn methods_are_paths() {
        let regex = || Some(StringMatchType::RegularExpression);
        for (type_, service, method, expected) in [
            (None, "a.B", "C", PathKind::Exact("/a.B/C".into())),
            (None, ".a.B", "C_1", PathKind::Exact("/.a.B/C_1".into())),
            (None, "a.B", "", PathKind::Prefix("/a.B".into())),
            (None, "", "C", PathKind::Regex("/[^/]+/C".into())),
            (regex(), "a.*", "", PathKind::Regex("/(?:a.*)/[^/]+".into())),
            (
                regex(),
                "a|b",
                "c|d",
                PathKind::Regex("/(?:a|b)/(?:c|d)".into()),
            ),
        ] {
            assert_eq!(
                path(type_, service, method),
                Ok(expected),
                "{service} {method}"
            );
        }
    }

    #[test]
    fn invalid_grpc_methods_are_refused() {
        let regex = || Some(StringMatchType::RegularExpression);
        for (type_, service, method) in [
            (None, "", ""),
            (None, "a/B", ""),
            (None, "a..B", ""),
            (None, "1a", ""),
            (None, "a", "b.c"),
            (None, "a", "é"),
            (regex(), "a)|(?:b", "c"),
            (regex(), "(", ""),
            (Some(StringMatchType::Other("Glob".into())), "a", "b"),
        ] {
            assert!(path(type_, service, method).is_err(), "{service} {method}");
        }
    }
}
