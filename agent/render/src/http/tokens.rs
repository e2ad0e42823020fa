//! Tokens that requests need, in a file of their own: public keys would otherwise be in every route.
//!
//! A route names what it requires. Envoy answers 403 if the file lacks that name, and 500 if it has
//! no file, so that no request passes unchecked.

use std::collections::{BTreeMap, HashMap};

use envoy_types::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::per_route_config::RequirementSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtHeader, JwtProvider, JwtRequirement, JwtRequirementAndList,
    JwtRequirementOrList, PerRouteConfig,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::{Message as _, Name as _};
use sesame_proto::jwks;
use sesame_proto::schema::{
    ClaimHeader, TokenHeader, TokenPolicy, TokenProvider, TokenSet, TokenSource, token_source,
};

use super::{auth_headers, headers};
use crate::rendered::Resource;
use crate::wrappers;

/// The name of the filter, and the key of a route's configuration.
pub(crate) const FILTER: &str = "tokens";

/// The name of the filter under which Envoy has the claims of a request.
pub(crate) const CLAIMS: &str = "envoy.filters.http.jwt_authn";

/// The type of the filter.
pub(crate) fn type_url() -> String {
    JwtAuthentication::type_url()
}

/// Returns a route's configuration that requires a token of this policy, or of each of this set.
pub(crate) fn required(name: &str) -> Any {
    of_route(RequirementSpecifier::RequirementName(name.to_owned()))
}

/// Returns a route's configuration that requires no token.
pub(crate) fn idle() -> Any {
    of_route(RequirementSpecifier::Disabled(true))
}

fn of_route(requirement: RequirementSpecifier) -> Any {
    pack_any(PerRouteConfig {
        requirement_specifier: Some(requirement),
    })
}

/// The contents of the file: providers and requirements by name.
#[derive(Default)]
pub(crate) struct Tokens {
    providers: BTreeMap<String, JwtProvider>,
    requirements: BTreeMap<String, JwtRequirement>,
}

impl Tokens {
    /// Adds a policy that [`check`] accepts.
    pub(crate) fn add(&mut self, name: &str, policy: &TokenPolicy) -> Result<(), String> {
        let mut any = Vec::with_capacity(policy.providers.len());
        for spec in &policy.providers {
            let key = provider_key(name, &spec.name);
            let provider = provider(spec, &key)?;
            any.push(requirement(RequiresType::ProviderName(key.clone())));
            self.providers.insert(key, provider);
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

    /// Adds a set, or returns an error if the file lacks one of its policies.
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

    /// Returns the file.
    pub(crate) fn into_resource(self) -> Resource {
        let Self {
            providers,
            requirements,
        } = self;
        let mut value = Vec::new();
        // One entry at a time, because prost writes the entries of a map in random order.
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
        let config = TypedExtensionConfig {
            name: FILTER.to_owned(),
            typed_config: Some(Any {
                type_url: type_url(),
                value,
            }),
        };
        Resource {
            name: FILTER.to_owned(),
            bytes: config.encode_to_vec().into(),
        }
    }
}

/// Returns the name of a provider in Envoy, under which Envoy also puts the claims of its tokens.
pub(crate) fn provider_key(policy: &str, provider: &str) -> String {
    format!("{policy}/{provider}")
}

/// Returns a route's configuration that sets headers from claims. A claim that the token lacks sets
/// nothing. Envoy answers 503 if a claim has characters that no header may have.
///
/// Not with the filter's own `claim_to_headers`: Envoy 1.40 removes those headers from the requests
/// of all routes with tokens, and so a tenant could remove headers of others.
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
    Ok(auth_headers::mutating(set.collect::<Result<_, _>>()?))
}

/// Returns an error if Envoy would refuse the policy.
pub(crate) fn check(policy: &TokenPolicy) -> Result<(), String> {
    let (count, most) = (policy.providers.len(), TokenPolicy::MAX_PROVIDERS);
    if !(1..=most).contains(&count) {
        return Err(format!(
            "{count} providers of tokens; 1 to {most} are allowed"
        ));
    }
    let sorted = policy.providers.windows(2);
    if !sorted
        .into_iter()
        .all(|pair| matches!(pair, [a, b] if a.name < b.name))
    {
        return Err("providers of tokens are not in the order of their names".to_owned());
    }
    for spec in &policy.providers {
        provider(spec, "")?;
    }
    Ok(())
}

/// Returns an error if Envoy would not find the set by its policies.
pub(crate) fn check_set(name: &str, set: &TokenSet) -> Result<(), String> {
    if set.policies.len() < 2 || TokenSet::name(&set.policies) != name {
        return Err("its name does not join the names of several policies".to_owned());
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
        forward,
    } = spec;
    let most = TokenPolicy::MAX_ENTRIES;
    if audiences.len() > most || sources.len() > most {
        return Err(format!(
            "provider `{name}`: at most {most} audiences and sources are allowed"
        ));
    }
    if issuer.is_empty() {
        return Err(format!("provider `{name}` has no issuer"));
    }
    let keys = jwks::canonical(jwks).and_then(|keys| jwks::acceptable(&keys));
    let keys = keys.map_err(|why| format!("provider `{name}`: key set {why}"))?;
    let mut provider = JwtProvider {
        issuer: issuer.clone(),
        audiences: audiences.clone(),
        jwks_source_specifier: Some(JwksSourceSpecifier::LocalJwks(DataSource {
            specifier: Some(Specifier::InlineString(keys)),
            ..Default::default()
        })),
        forward: *forward,
        payload_in_metadata: key.to_owned(),
        require_expiration: true,
        ..Default::default()
    };
    for TokenSource { kind } in sources {
        match kind {
            Some(token_source::Kind::Header(TokenHeader { name, prefix })) => {
                headers::check_name(name)?;
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
            Some(_) => return Err(format!("provider `{name}`: a source of tokens has no name")),
            None => return Err(format!("provider `{name}`: a source of tokens has no kind")),
        }
    }
    if sources.is_empty() {
        // Envoy's default also accepts a query parameter, which ends up in logs.
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
