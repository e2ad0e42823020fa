//! Responses that replace others: error pages, and redirects to a page where clients sign in.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValueOption, TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::custom_response::v3::CustomResponse;
use envoy_types::pb::envoy::extensions::http::custom_response::local_response_policy::v3::LocalResponsePolicy;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    HttpResponseLocalReplyMatchInput, HttpResponseStatusCodeClassMatchInput,
    HttpResponseStatusCodeMatchInput,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, PredicateList,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, matcher};
use envoy_types::util::pack_any;
use sesame_proto::schema::{ErrorPage, SharedFilter, SignIn};

use super::composite::{self, filter};
use crate::header_checks::{check_target, check_value};
use crate::wrappers;

const SIGN_IN_STATUS: u32 = 302;

/// The request's path and query. Characters that end a query parameter, or have another meaning
/// there, cannot be encoded, so parts that contain them are omitted. An empty segment is omitted,
/// too, because `//host` is a URL of another host.
const RETURN_TO: &str = "%CEL(request.path.matches('^(/[A-Za-z0-9._~-]+)*/?([?][A-Za-z0-9._~=/-]*)?$') ? request.path : request.url_path.matches('^(/[A-Za-z0-9._~-]+)*/?$') ? request.url_path : '/')%";

/// Returns `None` if no response is replaced.
pub(crate) fn render(
    pages: &[ErrorPage],
    sign_in: Option<&SignIn>,
) -> Result<Option<TypedExtensionConfig>, String> {
    let most = SharedFilter::MAX_PAGES;
    if pages.len() > most {
        return Err(format!("more than {most} error pages"));
    }
    let matchers = sign_in.map(signing_in).into_iter();
    let matchers = matchers.chain(pages.iter().map(page));
    let matchers: Vec<_> = matchers.collect::<Result<_, _>>()?;
    if matchers.is_empty() {
        return Ok(None);
    }
    Ok(Some(custom_response(matchers)))
}

fn custom_response(matchers: Vec<FieldMatcher>) -> TypedExtensionConfig {
    let config = CustomResponse {
        custom_response_matcher: Some(Matcher {
            matcher_type: Some(matcher::MatcherType::MatcherList(matcher::MatcherList {
                matchers,
            })),
            ..Default::default()
        }),
    };
    filter("envoy.filters.http.custom_response", pack_any(config))
}

fn signing_in(sign_in: &SignIn) -> Result<FieldMatcher, String> {
    let response = LocalResponsePolicy {
        status_code: wrappers::uint32(SIGN_IN_STATUS),
        response_headers_to_add: vec![overwritten("location", location(sign_in)?)],
        ..Default::default()
    };
    Ok(replacing(of_proxy(with_status(401)), response))
}

/// Returns an Envoy format string.
fn location(sign_in: &SignIn) -> Result<String, String> {
    let SignIn {
        scheme,
        host,
        path,
        parameter,
        path_only,
    } = sign_in;
    let is_host = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b':');
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
    if !matches!(scheme.as_str(), "http" | "https")
        || !host.bytes().all(is_host)
        || !parameter.bytes().all(is_name)
        || !path.starts_with('/')
    {
        return Err("invalid URL of a sign-in page".to_owned());
    }
    check_target(path).map_err(|why| format!("path of a sign-in page: {why}"))?;
    let host = match host.as_str() {
        "" => "%REQ(:AUTHORITY)%",
        host => host,
    };
    let page = format!("{scheme}://{host}{}", wrappers::literal(path));
    if parameter.is_empty() {
        return Ok(page);
    }
    let separator = if path.contains('?') { '&' } else { '?' };
    let origin = if *path_only {
        ""
    } else {
        "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%"
    };
    Ok(format!("{page}{separator}{parameter}={origin}{RETURN_TO}"))
}

fn page(page: &ErrorPage) -> Result<FieldMatcher, String> {
    let ErrorPage {
        statuses,
        body,
        content_type,
        status,
        of_backends,
    } = page;
    let most = SharedFilter::MAX_PAGE_BYTES;
    if body.len() > most {
        return Err(format!(
            "an error page of {} bytes; at most {most} are allowed",
            body.len()
        ));
    }
    if !matches!(status, 0 | 200..=599) {
        return Err(format!("invalid error page status {status}"));
    }
    check_value(content_type).map_err(|why| format!("media type of an error page: {why}"))?;
    let statuses = statuses.iter().map(|status| match status {
        4 | 5 => Ok(composite::predicate(
            pack_any(HttpResponseStatusCodeClassMatchInput {}),
            MatchPattern::Exact(format!("{status}xx")),
        )),
        400..=599 => Ok(with_status(*status)),
        _ => Err(format!("an error page for status {status}")),
    });
    let mut predicate = any_of(statuses.collect::<Result<_, _>>()?)?;
    if !of_backends {
        predicate = of_proxy(predicate);
    }
    let content_type = match content_type.as_str() {
        "" => "text/html",
        content_type => content_type,
    };
    let response = LocalResponsePolicy {
        body: Some(wrappers::text(body)),
        status_code: wrappers::uint32(*status).filter(|_| *status > 0),
        response_headers_to_add: vec![overwritten("content-type", wrappers::literal(content_type))],
        ..Default::default()
    };
    Ok(replacing(predicate, response))
}

fn replacing(predicate: Predicate, response: LocalResponsePolicy) -> FieldMatcher {
    FieldMatcher {
        predicate: Some(predicate),
        on_match: Some(composite::on_match("page", pack_any(response))),
    }
}

fn with_status(status: u32) -> Predicate {
    composite::predicate(
        pack_any(HttpResponseStatusCodeMatchInput {}),
        MatchPattern::Exact(status.to_string()),
    )
}

/// Excludes responses of backends.
fn of_proxy(predicate: Predicate) -> Predicate {
    let is_own = composite::predicate(
        pack_any(HttpResponseLocalReplyMatchInput {}),
        MatchPattern::Exact("true".to_owned()),
    );
    Predicate {
        match_type: Some(MatchType::AndMatcher(PredicateList {
            predicate: vec![is_own, predicate],
        })),
    }
}

/// Envoy's `OrMatcher` requires at least two predicates.
fn any_of(mut predicates: Vec<Predicate>) -> Result<Predicate, String> {
    match predicates.len() {
        0 => Err("an error page without statuses".to_owned()),
        1 => Ok(predicates.swap_remove(0)),
        _ => Ok(Predicate {
            match_type: Some(MatchType::OrMatcher(PredicateList {
                predicate: predicates,
            })),
        }),
    }
}

/// Returns a filter that replaces all of the proxy's own responses.
pub(crate) fn of_own_responses(response: LocalResponsePolicy) -> TypedExtensionConfig {
    let is_own = composite::predicate(
        pack_any(HttpResponseLocalReplyMatchInput {}),
        MatchPattern::Exact("true".to_owned()),
    );
    custom_response(vec![replacing(is_own, response)])
}

/// `value` is an Envoy format string.
pub(crate) fn overwritten(name: &str, value: String) -> HeaderValueOption {
    wrappers::header(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_pages_with_other_characters_are_refused() {
        let good = SignIn {
            scheme: "https".into(),
            host: "login.test:8443".into(),
            path: "/start?a=100%25".into(),
            parameter: "rd".into(),
            path_only: true,
        };
        let found = location(&good).unwrap();
        let expected = format!("https://login.test:8443/start?a=100%%25&rd={RETURN_TO}");
        assert_eq!(found, expected);
        for bad in [
            SignIn {
                scheme: "javascript".into(),
                ..good.clone()
            },
            SignIn {
                host: "a.test/%REQ(X)%".into(),
                ..good.clone()
            },
            SignIn {
                host: "a@b".into(),
                ..good.clone()
            },
            SignIn {
                path: String::new(),
                ..good.clone()
            },
            SignIn {
                path: "/a\r\nb".into(),
                ..good.clone()
            },
            SignIn {
                parameter: "a=b&rd".into(),
                ..good.clone()
            },
        ] {
            assert!(location(&bad).is_err(), "{bad:?}");
        }
    }
}
