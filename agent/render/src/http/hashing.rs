//! Values of a request that choose its endpoint.

use envoy_types::pb::envoy::config::route::v3::route_action::{
    HashPolicy as EnvoyPolicy,
    hash_policy::{ConnectionProperties, Header, PolicySpecifier, QueryParameter},
};
use sesame_proto::schema::HashPolicy;
use sesame_proto::schema::hash_policy::Kind;

use super::headers;
use crate::rendered::RenderProblems;

/// Returns the policies of a route. One that Envoy would refuse is left out.
pub(super) fn render(
    route: &str,
    policies: &[HashPolicy],
    problems: &mut RenderProblems,
) -> Vec<EnvoyPolicy> {
    let policies = policies.iter().take(HashPolicy::MOST);
    let rendered = policies.filter_map(|policy| {
        problems.value(route, policy_of(policy), "its value chooses no endpoint")
    });
    rendered.collect()
}

fn policy_of(policy: &HashPolicy) -> Result<EnvoyPolicy, String> {
    let HashPolicy { kind, terminal } = policy;
    let specifier = match kind {
        Some(Kind::Header(name)) => {
            headers::check_name(name).map_err(|why| format!("header of a hash: {why}"))?;
            PolicySpecifier::Header(Header {
                header_name: name.clone(),
                ..Default::default()
            })
        }
        Some(Kind::QueryParameter(name)) if !name.is_empty() => {
            PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
        }
        Some(Kind::SourceAddress(true)) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
        }
        _ => return Err("a hash has no value".to_owned()),
    };
    Ok(EnvoyPolicy {
        terminal: *terminal,
        policy_specifier: Some(specifier),
    })
}
