//! Follows the SesameConfiguration in a file or in the cluster. An invalid version is reported and
//! ignored; it must never stop the process.

mod conditions;
mod file;
mod object;
mod settings;

use std::path::PathBuf;

use tokio::sync::watch;

use crate::replica::{Replica, replace};
use sesame_kinds::api::{NamespacedName, SesameConfigurationSpec};

pub(crate) use self::file::read;
pub(crate) use self::settings::{ControllerSettings, SelectionRule, settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationSource {
    Flags,
    File(PathBuf),
    Object(NamespacedName),
}

pub(crate) type CurrentSettings = Result<ControllerSettings, String>;

pub(crate) struct ConfigurationFollower {
    pub(crate) replica: Replica,
    pub(crate) source: ConfigurationSource,
    /// Settings from flags and environment variables.
    pub(crate) flags: SesameConfigurationSpec,
    /// Memory limit for all Gateways' routes, in MiB.
    pub(crate) memory_mib: u64,
    pub(crate) current: watch::Sender<CurrentSettings>,
}

impl ConfigurationFollower {
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

    /// Keeps the previous settings if the new ones are invalid.
    fn accept(&self, found: Result<ControllerSettings, String>, from: &str) {
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
