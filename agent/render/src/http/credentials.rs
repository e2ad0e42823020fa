//! Checks passwords and API keys. The checks are in a separate file, so that routes do not repeat
//! credentials.
//!
//! No request passes unchecked. A check whose credentials are missing responds with 500. Envoy
//! silently skips filter chains that are missing from this file, so each chain marks the requests
//! that it has checked, and [`unmarked`] rejects requests without this mark.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::Principal;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::api_key_auth::v3::{
    ApiKeyAuth as ApiKeyFilter, Credential, Forwarding, KeySource,
};
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth as BasicFilter;
use envoy_types::pb::envoy::extensions::filters::http::set_metadata::v3::{Config, Metadata};
use envoy_types::pb::google::protobuf::{Struct, Value, value};
use envoy_types::util::pack_any;
use sesame_proto::credentials;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    ApiKeyAuth, ApiKeySource, BasicAuth, CredentialCheck, CredentialSet, api_key_source,
    credential_check,
};

use super::authorization::{metadata_is, not};
use super::composite::filter;
use super::exempt_clients::ExemptClients;
use super::passwords::{self, AgentUsers};
use super::{headers, request_filters};
use crate::wrappers;

pub(crate) const FILTER: &str = "credentials";

/// Metadata that shows which chain has checked a request.
const MARK: &str = "sesame.credentials";
const CHECKED: &str = "checked";

pub(crate) type Pairs<'k> = BTreeMap<&'k str, &'k KeyPair>;

pub(crate) fn check_set(name: &str, set: &CredentialSet) -> Result<(), String> {
    let CredentialSet { checks } = set;
    if checks.is_empty() || CredentialSet::name(checks) != name {
        return Err("its name is not composed of its checks' names".to_owned());
    }
    for check in checks {
        let CredentialCheck {
            name,
            kind,
            exempt_clients,
        } = check;
        let exempt = exempt_clients.as_ref().map(ExemptClients::read);
        exempt
            .transpose()
            .map_err(|why| format!("`{name}`: {why}"))?;
        let header = match kind {
            Some(credential_check::Kind::Basic(BasicAuth { username_header })) => username_header,
            Some(credential_check::Kind::ApiKey(api_key)) => {
                key_sources(api_key).map_err(|why| format!("`{name}`: {why}"))?;
                &api_key.client_header
            }
            None => return Err(format!("`{name}`: its kind is unknown")),
        };
        if !header.is_empty() {
            headers::check_writable(header).map_err(|why| format!("`{name}`: {why}"))?;
        }
    }
    Ok(())
}

/// Returns the filters of a valid set. If credentials are missing or invalid, also returns why.
pub(crate) fn chain(
    name: &str,
    set: &CredentialSet,
    pairs: &Pairs<'_>,
) -> (Vec<TypedExtensionConfig>, Option<String>) {
    let checks = set.checks.iter().enumerate();
    let checks = checks.map(|(i, check)| {
        let later = set.checks.get(i + 1..).unwrap_or_default();
        let checking = checking(check, later, pairs);
        checking.map_err(|why| format!("`{}`: {why}", check.name))
    });
    let checks = match checks.collect::<Result<Vec<_>, _>>() {
        Ok(checks) => checks,
        Err(why) => return (vec![refusing()], Some(why)),
    };
    let (mut filters, mut by_agent) = (Vec::new(), Vec::new());
    for check in checks {
        match check {
            Checking::ByEnvoy(filter) => filters.push(filter),
            Checking::ByAgent(users) => by_agent.push(users),
        }
    }
    // The mark comes first, because Envoy skips all filters after one that pauses a request. If the
    // agent rejects a request, the mark has no effect.
    filters.push(mark(name));
    match passwords::checking(&by_agent) {
        Ok(asking) => filters.extend(asking),
        Err(why) => return (vec![refusing()], Some(why)),
    }
    (filters, None)
}

enum Checking {
    ByEnvoy(TypedExtensionConfig),
    ByAgent(AgentUsers),
}

/// Matches requests that the chain of this set has not checked.
pub(crate) fn unmarked(set: &str) -> Principal {
    not(metadata_is(MARK, CHECKED, set))
}

fn checking(
    check: &CredentialCheck,
    later: &[CredentialCheck],
    pairs: &Pairs<'_>,
) -> Result<Checking, String> {
    let CredentialCheck {
        name,
        kind,
        exempt_clients,
    } = check;
    let exempt = exempt_clients.as_ref().map(ExemptClients::read);
    let exempt = exempt.transpose()?;
    let by_envoy = |filter| {
        Checking::ByEnvoy(match &exempt {
            Some(clients) => clients.bypass(filter),
            None => filter,
        })
    };
    let pair = pairs.get(name.as_str());
    let pair = pair.ok_or("its credentials are not on this host")?;
    let text = std::str::from_utf8(&pair.private_key);
    let text = text.map_err(|_| "its credentials are not text")?;
    match kind {
        Some(credential_check::Kind::Basic(BasicAuth { username_header })) => {
            let users = credentials::users(text)?;
            if credentials::need_agent(&users) {
                return Ok(Checking::ByAgent(AgentUsers {
                    digest: pair.digest(),
                    username_header: username_header.clone(),
                    exempt: exempt_clients.clone(),
                }));
            }
            let config = BasicFilter {
                users: Some(wrappers::text(credentials::write(&users))),
                forward_username_header: username_header.clone(),
                ..Default::default()
            };
            let filter = filter("envoy.filters.http.basic_auth", pack_any(config));
            Ok(by_envoy(filter))
        }
        Some(credential_check::Kind::ApiKey(api_key)) => {
            let keys = credentials::api_keys(text)?.into_iter();
            let credentials = keys.map(|(client, key)| Credential {
                key: key.to_owned(),
                client: client.to_owned(),
            });
            let config = ApiKeyFilter {
                credentials: credentials.collect(),
                key_sources: key_sources(api_key)?,
                forwarding: Some(Forwarding {
                    header: api_key.client_header.clone(),
                    hide_credentials: api_key.hide && !later.iter().any(|it| reads(it, api_key)),
                }),
            };
            let filter = filter("envoy.filters.http.api_key_auth", pack_any(config));
            Ok(by_envoy(filter))
        }
        None => Err("its kind is unknown".to_owned()),
    }
}

/// Returns true if `check` reads one of `other`'s sources, so `other` must not remove the key.
fn reads(check: &CredentialCheck, other: &ApiKeyAuth) -> bool {
    match &check.kind {
        Some(credential_check::Kind::ApiKey(api_key)) => {
            let mut sources = api_key.sources.iter();
            sources.any(|source| other.sources.contains(source))
        }
        _ => false,
    }
}

fn key_sources(api_key: &ApiKeyAuth) -> Result<Vec<KeySource>, String> {
    let (count, most) = (api_key.sources.len(), CredentialSet::MAX_SOURCES);
    if !(1..=most).contains(&count) {
        return Err(format!(
            "{count} sources of API keys; 1 to {most} are allowed"
        ));
    }
    let sources = api_key.sources.iter().map(|ApiKeySource { kind }| {
        let mut source = KeySource::default();
        match kind {
            Some(api_key_source::Kind::Header(name)) => {
                headers::check_name(name)?;
                source.header.clone_from(name);
            }
            Some(api_key_source::Kind::QueryParameter(name)) if !name.is_empty() => {
                source.query.clone_from(name);
            }
            Some(api_key_source::Kind::Cookie(name)) if !name.is_empty() => {
                source.cookie.clone_from(name);
            }
            Some(_) => return Err("a source of API keys has no name".to_owned()),
            None => return Err("a source of API keys has no kind".to_owned()),
        }
        Ok(source)
    });
    sources.collect()
}

fn mark(set: &str) -> TypedExtensionConfig {
    let checked = Value {
        kind: Some(value::Kind::StringValue(set.to_owned())),
    };
    let config = Config {
        metadata: vec![Metadata {
            metadata_namespace: MARK.to_owned(),
            value: Some(Struct {
                fields: [(CHECKED.to_owned(), checked)].into(),
            }),
            ..Default::default()
        }],
        ..Default::default()
    };
    filter("envoy.filters.http.set_metadata", pack_any(config))
}

pub(crate) fn refusing() -> TypedExtensionConfig {
    let any = HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
        ..Default::default()
    };
    let config = request_filters::abort(any, 500);
    filter("envoy.filters.http.fault", pack_any(config))
}
