//! Configuration sources for Envoy: files that it watches.

use std::path::Path;

use envoy_types::pb::envoy::config::core::v3::{
    ApiVersion, ConfigSource, PathConfigSource, config_source::ConfigSourceSpecifier,
};

/// Without `watched_directory`, Envoy reloads the file only when another file is renamed to its
/// exact path.
pub(crate) fn file(path: &Path) -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::PathConfigSource(PathConfigSource {
            path: path.to_string_lossy().into_owned(),
            ..Default::default()
        })),
        ..Default::default()
    }
}
