//! Follows the controller's configuration: a SesameConfiguration in the cluster or in a file,
//! overridden by flags and environment variables.
//!
//! `settings` is pure and derives the settings from the configuration. `file` and `object` follow
//! the configuration and apply each valid version. An invalid version is reported and changes
//! nothing. While this replica is the leader, `object` also writes the conditions of every
//! SesameConfiguration, computed by `conditions`. Nothing is served before the first valid version;
//! the readiness probe reports why. An invalid configuration must never stop the process.

mod conditions;
mod file;
mod object;
mod settings;

use std::path::PathBuf;

use tokio::sync::watch;

use crate::replica::{Replica, replace};
use sesame_gateway_api::api::{NamespacedName, SesameConfigurationSpec};

pub(crate) use self::file::read;
pub(crate) use self::settings::{ControllerSettings, Resolving, SelectionRule, settings};

/// Source of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationSource {
    /// Only flags and environment variables.
    Flags,
    /// A file, which is reread when it changes.
    File(PathBuf),
    /// An object in the cluster.
    Object(NamespacedName),
}

/// The current settings, or the reason why there are none.
pub(crate) type CurrentSettings = Result<ControllerSettings, String>;

/// State of the task that follows the configuration.
pub(crate) struct ConfigurationFollower {
    pub(crate) replica: Replica,
    pub(crate) source: ConfigurationSource,
    /// Fields set by flags and environment variables.
    pub(crate) flags: SesameConfigurationSpec,
    pub(crate) resolving: Resolving,
    pub(crate) current: watch::Sender<CurrentSettings>,
}

impl ConfigurationFollower {
    /// Runs until the settings' receiver is dropped.
    pub(crate) async fn run(self) {
        let definitions = object::follow(&self);
        match &self.source {
            ConfigurationSource::File(path) => {
                let files = file::follow(&self, path);
                tokio::join!(definitions, files);
            }
            ConfigurationSource::Flags | ConfigurationSource::Object(_) => definitions.await,
        }
    }

    /// Applies a version of the configuration. If it is unusable, keeps the previous version.
    fn take(&self, found: Result<ControllerSettings, String>, from: &str) {
        match found {
            Ok(settings) => {
                if replace(&self.current, Ok(settings)) {
                    tracing::info!(from, "the configuration is in effect");
                }
            }
            Err(why) => {
                let waits = self.current.borrow().is_err();
                if waits {
                    if replace(&self.current, Err(why.clone())) {
                        tracing::warn!(
                            from,
                            why,
                            "nothing is served until there is a valid configuration"
                        );
                    }
                } else {
                    tracing::warn!(
                        from,
                        why,
                        "the configuration is invalid; keeping the previous one"
                    );
                }
            }
        }
    }
}
