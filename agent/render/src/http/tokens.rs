//! Token (JWT) requirements, in a separate file because routes must not repeat public keys.
//!
//! No request passes unchecked: Envoy responds with 403 if the file lacks the requirement, and with
//! 500 if the file is missing.

use std::collections::{BTreeMap, HashMap};

use envoy_types::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::per_route_config::RequirementSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtHeader, JwtProvider, JwtRequirement, JwtRequirementAndList,
    JwtRequirementOrList, PerRouteConfig,
};
use envoy_types::pb::google::protobuf::{Any, Empty};
use envoy_types::util::pack_any;
use prost::{Message as _, Name as _};
use sesame_proto::jwks;
use sesame_proto::schema::{
    ClaimHeader, TokenHeader, TokenPolicy, TokenProvider, TokenSet, TokenSource, token_source,
};

use super::{headers, request_filters};
use crate::rendered::Resource;
use crate::wrappers;

pub(crate) const FILTER: &str = "tokens";

/// Envoy stores a request's claims as metadata under this filter name.
pub(crate) const CLAIMS: &str = "envoy.filters.http.jwt_authn";

pub(crate) fn type_url() -> String {
    JwtAuthentication::type_url()
}

pub(crate) fn required(name: &str) -> Any {
    of_route(RequirementSpecifier::RequirementName(name.to_owned()))
}

pub(crate) fn idle() -> Any {
    of_route(RequirementSpecifier::Disabled(true))
}

fn of_route(requirement: RequirementSpecifier) -> Any {
    pack_any(PerRouteConfig {
        requirement_specifier: Some(requirement),
    })
}

#[derive(Default)]
pub(crate) struct Tokens {
    providers: BTreeMap<String, JwtProvider>,
    requirements: BTreeMap<String, JwtRequirement>,
}

impl Tokens {
    pub(crate) fn add(&mut self, name: &str, policy: &TokenPolicy) -> Result<(), String> {
        let providers = providers(name, policy)?;
        let required =
            |(key, _): &(String, JwtProvider)| requirement(RequiresType::ProviderName(key.clone()));
        let mut any: Vec<_> = providers.iter().map(required).collect();
        self.providers.extend(providers);
        if policy.report_only {
            any.push(requirement(RequiresType::AllowMissingOrFailed(Empty {})));
        }
        let required = match any.len() {
            1 => any.swap_remove(0),
            _ => requirement(RequiresType::RequiresAny(JwtRequirementOrList {
                requirements: any,
            })),
        };
        self.requirements.insert(name.to_owned(), required);
        Ok(())
    }

    pub(crate) fn add_set(&mut self, name: &str, set: &TokenSet) -> Result<(), String> {
        let policies = set.policies.iter().map(|policy| {
            let policy = self.requirements.get(policy).cloned();
            policy.ok_or("one of its policies is missing or invalid")
        });
        let requirements = policies.collect::<Result<_, _>>()?;
        let all = RequiresType::RequiresAll(JwtRequirementAndList { requirements });
        self.requirements.insert(name.to_owned(), requirement(all));
        Ok(())
    }

    pub(crate) fn into_resource(self) -> Resource {
        let Self {
            providers,
            requirements,
        } = self;
        let mut value = Vec::new();
        // Encode entries one by one, because prost writes map entries in random order.
        for provider in providers {
            let one = JwtAuthentication {
                providers: HashMap::from([provider]),
                ..Default::default()
            };
            value.extend(one.encode_to_vec());
        }
        for requirement in requirements {
            let one = JwtAuthentication {
                requirement_map: HashMap::from([requirement]),
                ..Default::default()
            };
            value.extend(one.encode_to_vec());
        }
        let type_url = type_url();
        let config = wrappers::extension(FILTER, Any { type_url, value });
        Resource::new(FILTER, &config)
    }
}

pub(crate) fn provider_key(policy: &str, provider: &str) -> String {
    format!("{policy}/{provider}")
}

/// A missing claim sets no header. A claim with characters that headers do not allow causes a 503.
///
/// Do not use `claim_to_headers`: Envoy 1.40 removes its headers from the requests of all routes
/// with tokens. A tenant could remove another tenant's headers.
pub(crate) fn claim_headers(headers: &[ClaimHeader]) -> Result<Any, String> {
    let set = headers.iter().map(|claim| {
        let ClaimHeader {
            header,
            tokens,
            provider,
            path,
        } = claim;
        headers::check_writable(header)?;
        let key = provider_key(tokens, provider);
        let is_key = |c: u8| ClaimHeader::is_name_character(c) || matches!(c, b'/' | b'.');
        if path.is_empty()
            || !path.iter().all(|it| ClaimHeader::is_name(it))
            || !key.bytes().all(is_key)
        {
            return Err(format!("header `{header}`: Envoy cannot read its claim"));
        }
        let value = format!("%DYNAMIC_METADATA({CLAIMS}:{key}:{})%", path.join(":"));
        let written = HeaderAppendAction::OverwriteIfExistsOrAdd;
        Ok(Action::Append(wrappers::header(header, value, written)))
    });
    Ok(request_filters::mutating(set.collect::<Result<_, _>>()?))
}

pub(crate) fn check(policy: &TokenPolicy) -> Result<(), String> {
    providers("", policy).map(drop)
}

fn providers(name: &str, policy: &TokenPolicy) -> Result<Vec<(String, JwtProvider)>, String> {
    let TokenPolicy {
        providers,
        report_only: _,
    } = policy;
    let (count, most) = (providers.len(), TokenPolicy::MAX_PROVIDERS);
    if !(1..=most).contains(&count) {
        return Err(format!("{count} token providers; 1 to {most} are allowed"));
    }
    if !providers.is_sorted_by(|a, b| a.name < b.name) {
        return Err("token providers are not sorted by name".to_owned());
    }
    let providers = providers.iter().map(|spec| {
        let key = provider_key(name, &spec.name);
        provider(spec, &key).map(|provider| (key, provider))
    });
    providers.collect()
}

pub(crate) fn check_set(name: &str, set: &TokenSet) -> Result<(), String> {
    if set.policies.len() < 2 || TokenSet::name(&set.policies) != name {
        return Err("its name is not composed of at least two policy names".to_owned());
    }
    Ok(())
}

fn provider(spec: &TokenProvider, key: &str) -> Result<JwtProvider, String> {
    let TokenProvider {
        name,
        issuer,
        audiences,
        jwks,
        sources,
    } = spec;
    let most = TokenPolicy::MAX_ENTRIES;
    if audiences.len() > most || sources.len() > most {
        return Err(format!(
            "provider `{name}`: at most {most} audiences and sources are allowed"
        ));
    }
    let keys = jwks::acceptable(jwks);
    let keys = keys.map_err(|why| format!("provider `{name}`: key set {why}"))?;
    let mut provider = JwtProvider {
        issuer: issuer.clone(),
        audiences: audiences.clone(),
        jwks_source_specifier: Some(JwksSourceSpecifier::LocalJwks(wrappers::text(keys))),
        // Another policy may need the token, so forward it. A later filter removes it.
        forward: true,
        payload_in_metadata: key.to_owned(),
        require_expiration: true,
        ..Default::default()
    };
    for TokenSource { kind } in sources {
        match kind {
            Some(token_source::Kind::Header(TokenHeader { name, prefix })) => {
                headers::check_name(name)?;
                headers::check_value(prefix)?;
                provider.from_headers.push(JwtHeader {
                    name: name.clone(),
                    value_prefix: prefix.clone(),
                });
            }
            Some(token_source::Kind::QueryParameter(name)) if !name.is_empty() => {
                provider.from_params.push(name.clone());
            }
            Some(token_source::Kind::Cookie(name)) if !name.is_empty() => {
                provider.from_cookies.push(name.clone());
            }
            Some(_) => return Err(format!("provider `{name}`: a token source has no name")),
            None => return Err(format!("provider `{name}`: a token source has no kind")),
        }
    }
    if sources.is_empty() {
        // By default, Envoy also accepts a query parameter, which would appear in logs.
        provider.from_headers.push(JwtHeader {
            name: "authorization".to_owned(),
            value_prefix: "Bearer ".to_owned(),
        });
    }
    Ok(provider)
}

fn requirement(requires: RequiresType) -> JwtRequirement {
    JwtRequirement {
        requires_type: Some(requires),
    }
}
