//! Authorization rules for requests that have passed all other checks.
//!
//! The access log names the policy that rejects a request.

use envoy_types::pb::envoy::config::rbac::v3::{
    MetadataSource, Principal, SourcedMetadata, principal,
};
use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::PathSegment;
use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use envoy_types::pb::envoy::r#type::matcher::v3::path_matcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::value_matcher;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, PathMatcher, StringMatcher, ValueMatcher, list_matcher,
};
use envoy_types::pb::google::protobuf::Any;
use sesame_proto::schema::{
    Authorization, AuthorizationRule, ClaimValues, HeaderValues, PathRule, TokenPolicy,
};

use super::address_filters::{self, NamedRule, to_principal};
use super::{certificates, credentials, headers, matches, tokens};
use crate::wrappers;

pub(crate) const FILTER: &str = "authorization";

/// All authorizations must allow a request, and the set of credentials, if any, must have been
/// checked. `reported` only report.
pub(crate) fn render(
    all: &[Authorization],
    credentials: &str,
    reported: ReportedRules<'_>,
) -> Result<Option<Any>, String> {
    let ReportedRules {
        tokens: token_policies,
        authorizations,
    } = reported;
    let unchecked = Some(credentials).filter(|set| !set.is_empty());
    let unchecked = unchecked.map(|set| (set.to_owned(), vec![credentials::unmarked(set)]));
    let enforced = unchecked.into_iter().chain(all_rejected(all)?);
    let without_tokens = token_policies.into_iter().map(|(name, policy)| {
        let providers = policy.providers.iter();
        let accepted = providers.map(|it| accepted(name, &it.name)).collect();
        (name.to_owned(), vec![not(any_of(accepted))])
    });
    let reported = without_tokens.chain(all_rejected(authorizations)?);
    Ok(address_filters::rejecting(
        enforced.collect(),
        reported.collect(),
    ))
}

/// Checks that only report.
#[derive(Default)]
pub(crate) struct ReportedRules<'a> {
    pub(crate) tokens: Vec<(&'a str, &'a TokenPolicy)>,
    pub(crate) authorizations: &'a [Authorization],
}

fn all_rejected(all: &[Authorization]) -> Result<Vec<NamedRule>, String> {
    let rejected = all.iter().map(|authorization| {
        let name = &authorization.name;
        let rejected = rejected(authorization).map_err(|why| format!("`{name}`: {why}"))?;
        Ok((name.clone(), vec![rejected]))
    });
    rejected.collect()
}

/// Matches requests with a valid token from the provider.
fn accepted(policy: &str, provider: &str) -> Principal {
    let key = tokens::provider_key(policy, provider);
    let exists = ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::PresentMatch(true)),
    };
    metadata(tokens::CLAIMS, std::iter::once(key.as_str()), exists)
}

/// Matches the requests that an authorization rejects. Earlier rules take precedence, so start with
/// the last one: a deny rule adds its requests, an allow rule removes them.
fn rejected(authorization: &Authorization) -> Result<Principal, String> {
    let Authorization {
        name: _,
        rules,
        allow_others,
    } = authorization;
    let (count, most) = (rules.len(), Authorization::MAX_RULES);
    if count > most {
        return Err(format!("{count} rules; at most {most} are allowed"));
    }
    let others = if *allow_others { not(any()) } else { any() };
    rules.iter().rev().try_fold(others, |later, rule| {
        let matched = matched(rule)?;
        Ok(if rule.allow {
            all_of(vec![not(matched), later])
        } else {
            any_of(vec![matched, later])
        })
    })
}

fn matched(rule: &AuthorizationRule) -> Result<Principal, String> {
    let AuthorizationRule {
        allow: _,
        claims,
        methods,
        paths,
        headers,
        clients,
        hosts,
        certificates,
    } = rule;
    let lists = [
        claims.len(),
        methods.len(),
        paths.len(),
        headers.len(),
        clients.len(),
        hosts.len(),
        certificates.len(),
    ];
    let most = Authorization::MAX_ENTRIES;
    if lists.into_iter().any(|it| it > most) {
        return Err(format!("a list in a rule has more than {most} entries"));
    }
    let mut parts = Vec::new();
    for claim in claims {
        parts.push(claim_principal(claim)?);
    }
    if !hosts.is_empty() {
        let hosts = hosts.iter().map(|host| host_principal(host));
        parts.push(any_of(hosts.collect::<Result<_, _>>()?));
    }
    if !methods.is_empty() {
        parts.push(header_principal(":method", methods));
    }
    if !paths.is_empty() {
        let paths = paths
            .iter()
            .map(path_principals)
            .collect::<Result<Vec<_>, _>>()?;
        parts.push(any_of(paths.into_iter().flatten().collect()));
    }
    for HeaderValues { name, values } in headers {
        headers::check_name(name)?;
        if values.is_empty() {
            return Err("a rule's header has no values".to_owned());
        }
        parts.push(header_principal(name, values));
    }
    if !clients.is_empty() {
        parts.push(any_of(address_filters::networks(clients)?));
    }
    if !certificates.is_empty() {
        let certificates = certificates.iter().map(certificates::principal);
        parts.push(any_of(certificates.collect::<Result<_, _>>()?));
    }
    Ok(if parts.is_empty() {
        any()
    } else {
        all_of(parts)
    })
}

fn claim_principal(claim: &ClaimValues) -> Result<Principal, String> {
    let ClaimValues {
        tokens: policy,
        providers,
        path,
        values,
    } = claim;
    let most = Authorization::MAX_ENTRIES;
    let is_short = |length: usize| (1..=most).contains(&length);
    if ![providers.len(), path.len(), values.len()]
        .into_iter()
        .all(is_short)
    {
        return Err(format!(
            "a rule's claim needs 1 to {most} providers, names and values"
        ));
    }
    let text = |value: &String| ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(wrappers::exact(
            value,
        ))),
    };
    let value = one_of(values.iter().map(text).collect());
    // The claim may be a string or a list of strings.
    let value = one_of(vec![
        value.clone(),
        ValueMatcher {
            match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(
                ListMatcher {
                    match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(value))),
                },
            ))),
        },
    ]);
    let provider_principal = |provider: &String| {
        let key = tokens::provider_key(policy, provider);
        let path = std::iter::once(&key).chain(path).map(String::as_str);
        metadata(tokens::CLAIMS, path, value.clone())
    };
    Ok(any_of(providers.iter().map(provider_principal).collect()))
}

/// Matches requests whose dynamic metadata contains this text.
pub(super) fn metadata_is(filter: &str, key: &str, text: &str) -> Principal {
    let value = ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(wrappers::exact(
            text,
        ))),
    };
    metadata(filter, std::iter::once(key), value)
}

fn metadata<'k>(
    filter: &str,
    path: impl Iterator<Item = &'k str>,
    value: ValueMatcher,
) -> Principal {
    let path = path.map(|key| PathSegment {
        segment: Some(Segment::Key(key.to_owned())),
    });
    let matcher = MetadataMatcher {
        filter: filter.to_owned(),
        path: path.collect(),
        value: Some(value),
        invert: false,
    };
    to_principal(principal::Identifier::SourcedMetadata(SourcedMetadata {
        metadata_matcher: Some(matcher),
        metadata_source: MetadataSource::Dynamic.into(),
    }))
}

fn one_of(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    if values.len() == 1 {
        return values.swap_remove(0);
    }
    ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::OrMatch(OrMatcher {
            value_matchers: values,
        })),
    }
}

fn path_principals(rule: &PathRule) -> Result<Vec<Principal>, String> {
    let PathRule { path, prefix } = rule;
    if !path.starts_with('/') {
        return Err("a rule's path does not begin with `/`".to_owned());
    }
    let matching = |pattern| {
        to_principal(principal::Identifier::UrlPath(PathMatcher {
            rule: Some(path_matcher::Rule::Path(StringMatcher {
                match_pattern: Some(pattern),
                ..Default::default()
            })),
        }))
    };
    if !prefix {
        return Ok(vec![matching(MatchPattern::Exact(path.clone()))]);
    }
    if path == "/" {
        return Ok(vec![any()]);
    }
    Ok(vec![
        matching(MatchPattern::Exact(path.clone())),
        matching(MatchPattern::Prefix(format!("{path}/"))),
    ])
}

/// Matches the host on any port. A wildcard matches one or more labels.
fn host_principal(host: &str) -> Result<Principal, String> {
    let (any_labels, rest) = match host.strip_prefix("*.") {
        Some(suffix) => ("[^:]+\\.", suffix),
        None => ("", host),
    };
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    if rest.is_empty() || !rest.bytes().all(allowed) {
        return Err(format!("a rule's host `{host}` is not a hostname"));
    }
    let name = rest.replace('.', "\\.");
    let pattern = format!("(?i){any_labels}{name}(:[0-9]+)?");
    let matcher = matches::header(":authority", wrappers::matching(pattern));
    Ok(to_principal(principal::Identifier::Header(matcher)))
}

fn header_principal(name: &str, values: &[String]) -> Principal {
    let one = |value: &String| {
        let matcher = matches::header(name, wrappers::exact(value));
        to_principal(principal::Identifier::Header(matcher))
    };
    any_of(values.iter().map(one).collect())
}

fn any() -> Principal {
    to_principal(principal::Identifier::Any(true))
}

pub(super) fn not(principal: Principal) -> Principal {
    to_principal(principal::Identifier::NotId(Box::new(principal)))
}

pub(super) fn any_of(ids: Vec<Principal>) -> Principal {
    joined(ids, principal::Identifier::OrIds)
}

pub(super) fn all_of(ids: Vec<Principal>) -> Principal {
    joined(ids, principal::Identifier::AndIds)
}

fn joined(
    mut ids: Vec<Principal>,
    join: impl Fn(principal::Set) -> principal::Identifier,
) -> Principal {
    if ids.len() == 1 {
        return ids.swap_remove(0);
    }
    to_principal(join(principal::Set { ids }))
}
