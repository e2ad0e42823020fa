//! The controller's own configuration: a SesameConfiguration in the cluster or in a file, under what flags and environment say.
//!
//! `settings` makes the settings of it: pure. `file` and `object` follow it, and hand on each valid version; one that is not
//! valid changes nothing, and is told. `object` also writes the conditions of every SesameConfiguration while this replica
//! leads, made by `conditions`. Before there is a valid version nothing is served, and the probe for readiness says why.
//! It must never end the process.

mod conditions;
mod file;
mod object;
mod settings;

use std::path::PathBuf;

use tokio::sync::watch;

use crate::replica::{Replica, replace};
use sesame_gateway_api::api::{NamespacedName, SesameConfigurationSpec};

pub(crate) use self::file::read;
pub(crate) use self::settings::{ControllerSettings, SelectionRule, settings};

/// Place of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationSource {
    /// Flags and environment say all.
    Flags,
    /// File, which is read again when it has changed.
    File(PathBuf),
    /// Object of the cluster.
    Object(NamespacedName),
}

/// Settings, or the reason why there are none yet.
pub(crate) type CurrentSettings = Result<ControllerSettings, String>;

/// Everything that the task owns.
pub(crate) struct ConfigurationFollower {
    pub(crate) replica: Replica,
    pub(crate) source: ConfigurationSource,
    /// Fields that flags and environment set.
    pub(crate) flags: SesameConfigurationSpec,
    pub(crate) incremental: bool,
    pub(crate) current: watch::Sender<CurrentSettings>,
}

impl ConfigurationFollower {
    /// Runs until the receiver of the settings is gone.
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

    /// Takes a version of the configuration, or the reason why there is none that can be used: what was known stays then.
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
                        "the configuration cannot be used; the one before stays in effect"
                    );
                }
            }
        }
    }
}
