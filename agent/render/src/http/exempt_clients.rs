//! Filters that some clients bypass, by their address.

use envoy_types::pb::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::common::matching::v3::ExtensionWithMatcher;
use envoy_types::pb::envoy::extensions::filters::common::matcher::action::v3::SkipFilter;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::SourceIpInput;
use envoy_types::pb::envoy::extensions::matching::input_matchers::ip::v3::Ip;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig as MatcherConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, PredicateList, SinglePredicate, single_predicate,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, matcher};
use envoy_types::util::pack_any;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::address_filters::range;
use super::composite::{self, filter};

/// Clients that match are exempt.
pub(crate) struct ExemptClients(Predicate);

impl ExemptClients {
    /// Fails unless the filter names networks, because it would exempt all clients.
    pub(crate) fn read(clients: &AddressFilter) -> Result<Self, String> {
        let AddressFilter { name, allow, deny } = clients;
        let at = |why: String| format!("`{name}`: {why}");
        if allow.is_empty() {
            return Err(at("it exempts clients without naming networks".to_owned()));
        }
        let allowed = address_in(allow).map_err(at)?;
        if deny.is_empty() {
            return Ok(Self(allowed));
        }
        let denied = address_in(deny).map_err(at)?;
        Ok(Self(predicate(MatchType::AndMatcher(PredicateList {
            predicate: vec![allowed, not(denied)],
        }))))
    }

    /// Returns a predicate that matches other clients.
    pub(crate) fn others(&self) -> Predicate {
        not(self.0.clone())
    }

    /// Returns a filter that other clients' requests pass through.
    pub(crate) fn bypass(&self, config: TypedExtensionConfig) -> TypedExtensionConfig {
        skipped_if(self.0.clone(), config)
    }

    /// Returns a filter that only these clients' requests pass through.
    pub(crate) fn only(&self, config: TypedExtensionConfig) -> TypedExtensionConfig {
        skipped_if(self.others(), config)
    }
}

fn skipped_if(condition: Predicate, config: TypedExtensionConfig) -> TypedExtensionConfig {
    let field = FieldMatcher {
        predicate: Some(condition),
        on_match: Some(composite::on_match("skip", pack_any(SkipFilter {}))),
    };
    let delegate = ExtensionWithMatcher {
        extension_config: Some(config),
        xds_matcher: Some(Matcher {
            matcher_type: Some(matcher::MatcherType::MatcherList(matcher::MatcherList {
                matchers: vec![field],
            })),
            ..Default::default()
        }),
        ..Default::default()
    };
    filter("envoy.filters.http.match_delegate", pack_any(delegate))
}

/// Matches clients outside the networks, of which there must be at least one.
pub(crate) fn outside(ranges: &[AddressRange]) -> Result<Predicate, String> {
    Ok(not(address_in(ranges)?))
}

fn address_in(ranges: &[AddressRange]) -> Result<Predicate, String> {
    let cidr_ranges = ranges.iter().map(|AddressRange { network, peer }| {
        if *peer {
            return Err("clients cannot be exempt by peer address".to_owned());
        }
        range(network)
    });
    let ip = Ip {
        cidr_ranges: cidr_ranges.collect::<Result<Vec<CidrRange>, _>>()?,
        stat_prefix: "exempt_clients".to_owned(),
    };
    let named = |name: &str, config| MatcherConfig {
        name: name.to_owned(),
        typed_config: Some(config),
    };
    Ok(predicate(MatchType::SinglePredicate(SinglePredicate {
        input: Some(named("input", pack_any(SourceIpInput {}))),
        matcher: Some(single_predicate::Matcher::CustomMatch(named(
            "envoy.matching.matchers.ip",
            pack_any(ip),
        ))),
    })))
}

fn not(condition: Predicate) -> Predicate {
    predicate(MatchType::NotMatcher(Box::new(condition)))
}

fn predicate(match_type: MatchType) -> Predicate {
    Predicate {
        match_type: Some(match_type),
    }
}
