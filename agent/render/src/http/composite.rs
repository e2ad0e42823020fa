//! Placeholder filters, which run a filter that the route or virtual host supplies.
//!
//! The route's configuration replaces the virtual host's. Only a placeholder's last filter may
//! pause a request, because Envoy skips all filters after it.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::{ExtensionConfigSource, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::filters::http::composite::v3::{
    Composite, CompositePerRoute, ExecuteFilterAction, FilterChainConfiguration,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig as MatcherConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, SinglePredicate, single_predicate,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher, RegexMatcher, StringMatcher, matcher, regex_matcher,
};
use envoy_types::util::pack_any;
use prost::{Message as _, Name as _};

use crate::config_sources;
use crate::layout::XdsLayout;
use crate::rendered::Resource;
pub(crate) use crate::wrappers::extension as filter;

/// If Envoy cannot read the file, routes that use its filters respond with 500.
pub(crate) fn in_file(name: &str, type_url: String, layout: &XdsLayout) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        disabled: true,
        config_type: Some(http_filter::ConfigType::ConfigDiscovery(
            ExtensionConfigSource {
                config_source: Some(config_sources::file(&layout.ecds(name))),
                type_urls: vec![type_url],
                ..Default::default()
            },
        )),
        ..Default::default()
    }
}

pub(crate) fn type_url() -> String {
    Composite::type_url()
}

pub(crate) fn file(
    place: &str,
    filters: impl IntoIterator<Item = (String, Vec<TypedExtensionConfig>)>,
) -> Resource {
    let mut value = Vec::new();
    for (name, typed_config) in filters {
        // Encode entries one by one, because prost writes map entries in random order.
        let one = Composite {
            named_filter_chains: HashMap::from([(name, FilterChainConfiguration { typed_config })]),
            ..Default::default()
        };
        one.encode_raw(&mut value);
    }
    let type_url = Composite::type_url();
    Resource::new(place, &filter(place, Any { type_url, value }))
}

pub(crate) fn named(filter: &str) -> Any {
    configuration(always(ExecuteFilterAction {
        filter_chain_name: filter.to_owned(),
        ..Default::default()
    }))
}

/// Runs `first` if the predicate matches, and `other` otherwise.
pub(crate) fn named_if(predicate: Predicate, first: &str, other: Option<&str>) -> Any {
    let named = |filter: &str| {
        act(ExecuteFilterAction {
            filter_chain_name: filter.to_owned(),
            ..Default::default()
        })
    };
    choice(predicate, named(first), other.map(named))
}

pub(crate) fn inline(name: &str, config: Any) -> Any {
    configuration(always(ExecuteFilterAction {
        typed_config: Some(filter(name, config)),
        ..Default::default()
    }))
}

/// Runs the filter only if the predicate matches.
pub(crate) fn inline_if(predicate: Predicate, name: &str, config: Any) -> Any {
    let run = act(ExecuteFilterAction {
        typed_config: Some(filter(name, config)),
        ..Default::default()
    });
    choice(predicate, run, None)
}

fn choice(predicate: Predicate, run: matcher::OnMatch, otherwise: Option<matcher::OnMatch>) -> Any {
    let field = FieldMatcher {
        predicate: Some(predicate),
        on_match: Some(run),
    };
    configuration(Matcher {
        matcher_type: Some(matcher::MatcherType::MatcherList(matcher::MatcherList {
            matchers: vec![field],
        })),
        on_no_match: otherwise.map(Box::new),
    })
}

/// Only the last filter may pause a request. Upgraded requests skip the filters, because their body
/// has no end. Envoy has already removed the `upgrade` header from all other requests.
pub(crate) fn unless_upgraded(filters: Vec<TypedExtensionConfig>) -> Any {
    let upgrade = HttpRequestHeaderMatchInput {
        header_name: "upgrade".to_owned(),
    };
    let is_upgrade = predicate(pack_any(upgrade), any_value());
    let is_other = Predicate {
        match_type: Some(MatchType::NotMatcher(Box::new(is_upgrade))),
    };
    let run = act(ExecuteFilterAction {
        filter_chain: Some(FilterChainConfiguration {
            typed_config: filters,
        }),
        ..Default::default()
    });
    choice(is_other, run, None)
}

pub(crate) fn idle() -> Any {
    configuration(Matcher::default())
}

pub(crate) fn predicate(input: Any, value: MatchPattern) -> Predicate {
    let input = MatcherConfig {
        name: "input".to_owned(),
        typed_config: Some(input),
    };
    let value = StringMatcher {
        match_pattern: Some(value),
        ..Default::default()
    };
    Predicate {
        match_type: Some(MatchType::SinglePredicate(SinglePredicate {
            input: Some(input),
            matcher: Some(single_predicate::Matcher::ValueMatch(value)),
        })),
    }
}

pub(crate) fn on_match(name: &str, action: Any) -> matcher::OnMatch {
    matcher::OnMatch {
        on_match: Some(matcher::on_match::OnMatch::Action(MatcherConfig {
            name: name.to_owned(),
            typed_config: Some(action),
        })),
        ..Default::default()
    }
}

fn any_value() -> MatchPattern {
    MatchPattern::SafeRegex(RegexMatcher {
        regex: ".*".to_owned(),
        engine_type: Some(regex_matcher::EngineType::GoogleRe2(
            regex_matcher::GoogleRe2::default(),
        )),
    })
}

fn act(action: ExecuteFilterAction) -> matcher::OnMatch {
    on_match("execute", pack_any(action))
}

fn always(action: ExecuteFilterAction) -> Matcher {
    Matcher {
        on_no_match: Some(Box::new(act(action))),
        ..Default::default()
    }
}

fn configuration(matcher: Matcher) -> Any {
    pack_any(CompositePerRoute {
        matcher: Some(matcher),
    })
}
