//! Hash policies: which values of a request select its endpoint.

use envoy_types::pb::envoy::config::route::v3::route_action::{
    HashPolicy as EnvoyPolicy,
    hash_policy::{ConnectionProperties, Cookie, Header, PolicySpecifier, QueryParameter},
};
use sesame_proto::schema::HashPolicy;
use sesame_proto::schema::hash_policy::Kind;

use crate::http::headers;

pub(super) fn render(policies: &[HashPolicy]) -> Result<Vec<EnvoyPolicy>, String> {
    let policies = policies.iter().take(HashPolicy::MAX);
    policies.map(policy_of).collect()
}

fn policy_of(policy: &HashPolicy) -> Result<EnvoyPolicy, String> {
    let HashPolicy { kind, terminal } = policy;
    let specifier = match kind {
        Some(Kind::Header(name)) => {
            headers::check_name(name).map_err(|why| format!("hash header: {why}"))?;
            PolicySpecifier::Header(Header {
                header_name: name.clone(),
                ..Default::default()
            })
        }
        Some(Kind::QueryParameter(name)) if !name.is_empty() => {
            PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
        }
        // Without a TTL, Envoy reads the cookie but never sets it.
        Some(Kind::Cookie(name)) => {
            headers::check_name(name).map_err(|why| format!("hash cookie: {why}"))?;
            PolicySpecifier::Cookie(Cookie {
                name: name.clone(),
                ..Default::default()
            })
        }
        Some(Kind::SourceAddress(true)) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
        }
        _ => return Err("a hash policy has no kind".to_owned()),
    };
    Ok(EnvoyPolicy {
        terminal: *terminal,
        policy_specifier: Some(specifier),
    })
}
