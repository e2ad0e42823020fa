//! Merges two versions of a filter file. Envoy reads filter files and route tables independently:
//! removing an entry that a route still uses may bypass the filter or reject valid requests.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::composite::v3::Composite;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::JwtAuthentication;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use sesame_render::Resource;

/// Returns a file with the entries of both versions, or `None` if the new version already has them
/// all. Protobuf merges concatenated messages, and later values win.
pub(super) fn union(before: &Resource, after: &Resource) -> Option<Resource> {
    let (old, new) = (config(before)?, config(after)?);
    let (names, kept) = (names(&old)?, names(&new)?);
    if old.type_url != new.type_url || names.iter().all(|name| kept.contains(name)) {
        return None;
    }
    let config = TypedExtensionConfig {
        name: after.name.clone(),
        typed_config: Some(Any {
            type_url: new.type_url,
            value: [old.value, new.value].concat(),
        }),
    };
    Some(Resource {
        name: after.name.clone(),
        bytes: config.encode_to_vec().into(),
    })
}

fn config(resource: &Resource) -> Option<Any> {
    let config = TypedExtensionConfig::decode(&*resource.bytes).ok()?;
    config.typed_config
}

/// Returns `None` for filter types without named entries.
fn names(config: &Any) -> Option<Vec<String>> {
    fn keys<V>(map: HashMap<String, V>) -> Vec<String> {
        map.into_keys().collect()
    }
    if config.type_url == Composite::type_url() {
        let filters = Composite::decode(&*config.value).ok()?;
        return Some(keys(filters.named_filter_chains));
    }
    if config.type_url == JwtAuthentication::type_url() {
        let tokens = JwtAuthentication::decode(&*config.value).ok()?;
        return Some(keys(tokens.requirement_map));
    }
    None
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::extensions::filters::http::composite::v3::FilterChainConfiguration;
    use envoy_types::util::pack_any;

    use super::*;

    fn filter(version: &str) -> TypedExtensionConfig {
        TypedExtensionConfig {
            name: version.to_owned(),
            typed_config: None,
        }
    }

    fn file(entries: &[(&str, &str)]) -> Resource {
        let entries = entries.iter().map(|(name, version)| {
            let chain = FilterChainConfiguration {
                typed_config: vec![filter(version)],
            };
            ((*name).to_owned(), chain)
        });
        let filters = Composite {
            named_filter_chains: entries.collect(),
            ..Default::default()
        };
        let config = TypedExtensionConfig {
            name: "place".to_owned(),
            typed_config: Some(pack_any(filters)),
        };
        Resource {
            name: "place".to_owned(),
            bytes: config.encode_to_vec().into(),
        }
    }

    #[test]
    fn union_has_old_entries_and_new_versions() {
        let before = file(&[("a", "1"), ("b", "1")]);
        let both = union(&before, &file(&[("b", "2"), ("c", "2")])).unwrap();
        let merged = Composite::decode(&*config(&both).unwrap().value).unwrap();
        let version = |name: &str| merged.named_filter_chains[name].typed_config.clone();
        assert_eq!(version("a"), [filter("1")]);
        assert_eq!(version("b"), [filter("2")]);
        assert_eq!(version("c"), [filter("2")]);
        assert_eq!(
            union(&before, &file(&[("a", "2"), ("b", "1"), ("c", "1")])),
            None
        );
    }
}
