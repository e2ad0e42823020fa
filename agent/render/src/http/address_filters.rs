//! Filters that allow or deny clients by IP address.
//!
//! The access log names the policy that rejects a request.

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

/// A request must pass all filters.
pub(crate) fn render(filters: &[AddressFilter]) -> Result<Option<Any>, String> {
    let refused = filters.iter().map(|filter| {
        let AddressFilter { name, allow, deny } = filter;
        let refused = refused(allow, deny).map_err(|why| format!("`{name}`: {why}"))?;
        Ok::<_, String>((name.clone(), refused))
    });
    let refused: Vec<_> = refused.collect::<Result<_, _>>()?;
    Ok(rejecting(refused))
}

/// Responds with 403 if any principal matches. Each policy is a name and its principals.
pub(crate) fn rejecting(policies: Vec<(String, Vec<Principal>)>) -> Option<Any> {
    if policies.is_empty() {
        return None;
    }
    let mut value = rules(Rules {
        action: Action::Deny.into(),
        ..Default::default()
    });
    for (name, principals) in policies {
        let policy = Policy {
            permissions: vec![Permission {
                rule: Some(permission::Rule::Any(true)),
            }],
            principals,
            ..Default::default()
        };
        // Encode entries one by one, because prost writes map entries in random order.
        value.extend(rules(Rules {
            action: Action::Deny.into(),
            policies: HashMap::from([(name, policy)]),
            ..Default::default()
        }));
    }
    let filter = Any {
        type_url: Rbac::type_url(),
        value,
    };
    Some(composite::inline("envoy.filters.http.rbac", filter))
}

fn rules(rules: Rules) -> Vec<u8> {
    let filter = Rbac {
        rules: Some(rules),
        ..Default::default()
    };
    filter.encode_to_vec()
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

fn range(network: &str) -> Result<CidrRange, String> {
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
        assert!(render(&[filter(&["192.0.2.0/24", "2001:db8::/32"])]).is_ok());
        for bad in [
            &[][..],
            &["192.0.2.0"],
            &["192.0.2.0/33"],
            &["a/8"],
            &["::/129"],
        ] {
            assert!(render(&[filter(bad)]).is_err(), "{bad:?}");
        }
    }
}
