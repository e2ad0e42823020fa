//! Filters that allow or deny clients by IP address.
//!
//! The access log names the policy that rejects a request, and the policy that would reject it if it
//! did not only report.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac::Action,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use sesame_proto::network::Network;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::composite;
use crate::wrappers;

pub(crate) const FILTER: &str = "addresses";

/// Prefix of the metadata that names the policies that only report.
const REPORTED: &str = "reported_";

/// A request must pass all `filters`. `reported` only report.
pub(crate) fn render(
    filters: &[AddressFilter],
    reported: &[AddressFilter],
) -> Result<Option<Any>, String> {
    Ok(rejecting(all_refused(filters)?, all_refused(reported)?))
}

fn all_refused(filters: &[AddressFilter]) -> Result<Vec<NamedRule>, String> {
    let refused = filters.iter().map(|filter| {
        let AddressFilter { name, allow, deny } = filter;
        let refused = refused(allow, deny).map_err(|why| format!("`{name}`: {why}"))?;
        Ok((name.clone(), refused))
    });
    refused.collect()
}

/// A policy's name, and its principals, one of which must match.
pub(crate) type NamedRule = (String, Vec<Principal>);

/// Responds with 403 if a policy matches. Policies in `reported` only report, and all of them are
/// evaluated before the others.
pub(crate) fn rejecting(policies: Vec<NamedRule>, reported: Vec<NamedRule>) -> Option<Any> {
    if policies.is_empty() && reported.is_empty() {
        return None;
    }
    let mut value = Rbac {
        shadow_rules_stat_prefix: match reported.as_slice() {
            [] => String::new(),
            _ => REPORTED.to_owned(),
        },
        track_per_rule_stats: true,
        ..Default::default()
    }
    .encode_to_vec();
    extend(&mut value, policies, |rules| Rbac {
        rules: Some(rules),
        ..Default::default()
    });
    extend(&mut value, reported, |rules| Rbac {
        shadow_rules: Some(rules),
        ..Default::default()
    });
    let filter = Any {
        type_url: Rbac::type_url(),
        value,
    };
    Some(composite::inline("envoy.filters.http.rbac", filter))
}

fn extend(encoded: &mut Vec<u8>, policies: Vec<NamedRule>, filter: impl Fn(Rules) -> Rbac) {
    for (name, principals) in policies {
        let policy = Policy {
            permissions: vec![Permission {
                rule: Some(permission::Rule::Any(true)),
            }],
            principals,
            ..Default::default()
        };
        // Encode entries one by one, because prost writes map entries in random order.
        let rules = Rules {
            action: Action::Deny.into(),
            policies: HashMap::from([(name, policy)]),
            ..Default::default()
        };
        encoded.extend(filter(rules).encode_to_vec());
    }
}

fn refused(allow: &[AddressRange], deny: &[AddressRange]) -> Result<Vec<Principal>, String> {
    let (allowed, mut refused) = (networks(allow)?, networks(deny)?);
    if !allowed.is_empty() {
        let any = to_principal(principal::Identifier::OrIds(principal::Set {
            ids: allowed,
        }));
        refused.push(to_principal(principal::Identifier::NotId(Box::new(any))));
    }
    if refused.is_empty() {
        return Err("an address filter has no networks".to_owned());
    }
    Ok(refused)
}

pub(crate) fn networks(ranges: &[AddressRange]) -> Result<Vec<Principal>, String> {
    let ids = ranges.iter().map(|AddressRange { network, peer }| {
        let network = range(network)?;
        Ok(to_principal(if *peer {
            principal::Identifier::DirectRemoteIp(network)
        } else {
            principal::Identifier::RemoteIp(network)
        }))
    });
    ids.collect()
}

pub(crate) fn to_principal(identifier: principal::Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}

pub(crate) fn range(network: &str) -> Result<CidrRange, String> {
    let network: Network = network.parse()?;
    Ok(CidrRange {
        address_prefix: network.address().to_string(),
        prefix_len: wrappers::uint32(network.bits().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_without_networks_or_with_others_is_refused() {
        let filter = |allow: &[&str]| AddressFilter {
            allow: allow
                .iter()
                .map(|&it| AddressRange {
                    network: it.to_owned(),
                    peer: false,
                })
                .collect(),
            ..AddressFilter::default()
        };
        assert!(render(&[filter(&["192.0.2.0/24", "2001:db8::/32"])], &[]).is_ok());
        for bad in [
            &[][..],
            &["192.0.2.0"],
            &["192.0.2.0/33"],
            &["a/8"],
            &["::/129"],
        ] {
            assert!(render(&[filter(bad)], &[]).is_err(), "{bad:?}");
            assert!(render(&[], &[filter(bad)]).is_err(), "{bad:?}");
        }
    }
}
