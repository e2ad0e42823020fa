//! Configuration sources for Envoy. All of them are files that Envoy watches.

use std::path::Path;

use envoy_types::pb::envoy::config::core::v3::{
    ApiVersion, ConfigSource, PathConfigSource, config_source::ConfigSourceSpecifier,
};

/// Returns a file source. It has no `watched_directory`, so Envoy reloads the file when another
/// file is renamed to exactly its path.
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
